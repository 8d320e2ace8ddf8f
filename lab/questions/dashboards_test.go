// SPDX-License-Identifier: Apache-2.0

package questions

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// quiet has the panels of dashboards that show nothing in the scenarios of TestQuestions, and why.
var quiet = map[string]string{
	"univmon: DDoS victims":                   "the attack comes later",
	"univmon: Sources per victim":             "the attack comes later",
	"univmon: Watched flows":                  "nobody watches a flow",
	"univmon: Functions":                      "none is configured",
	"omnimon: Alerts by kind":                 "no alert is active at the end",
	"omnimon: Ended flows by duration":        "no flow ends",
	"omnimon: Queries":                        "none is configured",
	"chamelemon: Epochs with an alert":        "there is no alert",
	"chamelemon: Heavy changes":               "traffic does not change",
	"chamelemon: Watched flows":               "nobody watches a flow",
	"sketchint: Occupancy of queues":          "INT has no metadata of queues",
	"sketchint: Changed flows":                "traffic changes later",
	"sketchint: Changed paths":                "the path changes later",
	"sketchint: Faults":                       "all INT can be read",
	"sketchint: Senders of telemetry reports": "hosts read INT in packets",

	"collector: Epoch end to first update": "a subscriber comes before the last epoch",
	"collector: Sent":                      "nothing is sent in two epochs",
	"collector: Incomplete epochs":         "all epochs are complete",
}

// variable matches a variable of a dashboard, which selects all of its values here.
var variable = regexp.MustCompile(`\$\{\w+:regex\}`)

// panels runs the queries of the Grafana dashboards of a plugin and of the collector: each panel
// shows something.
func (p *played) panels(plugin string) {
	p.t.Helper()
	epochs := p.run.Report().Epochs
	during := fmt.Sprintf("time >= %d AND time <= %d", epochs[0].End.Add(-p.epoch).UnixNano(),
		epochs[len(epochs)-1].End.UnixNano())
	for _, name := range []string{plugin, "collector"} {
		text, err := os.ReadFile("../../configs/grafana/dashboards/netsketch-" + name + ".json")
		if err != nil {
			p.t.Fatal(err)
		}
		var d struct {
			Panels []struct {
				Type, Title string
				Targets     []struct{ Query string }
			}
		}
		if err := json.Unmarshal(text, &d); err != nil {
			p.t.Fatal(err)
		}
		shown := 0
		for _, panel := range d.Panels {
			if panel.Type == "row" {
				continue
			}
			values := 0
			for _, q := range panel.Targets {
				query := strings.NewReplacer("$timeFilter", during, "$__interval", "1s").Replace(q.Query)
				for _, s := range p.db.Query(variable.ReplaceAllString(query, ".*")) {
					for _, row := range s.Values {
						values += len(slices.DeleteFunc(row[1:], func(v any) bool { return v == nil })) // after the time
					}
				}
			}
			title := name + ": " + panel.Title
			if shown++; values == 0 && quiet[title] == "" {
				p.t.Errorf("the panel %s shows nothing", title)
			}
		}
		if shown < 10 {
			p.t.Errorf("%d panels of %s", shown, name)
		}
	}
}
