// SPDX-License-Identifier: Apache-2.0

package questions

import (
	"maps"
	"slices"
	"strings"

	"github.com/openconfig/gnmi/proto/gnmi"
	"github.com/prometheus/common/model"

	"github.com/netsketch/netsketch/yang"
)

// otherEnds are the lists whose rows do not have the end of the plugin's results as their
// timestamp, as docs/yang.md says.
var otherEnds = []string{"lightguardian/alert", "lightguardian/coverage/interval", "lightguardian/host"}

// entry is a row of a list.
type entry struct {
	list   string // yang.FlatName
	keys   map[string]string
	fields bool // the row has more than keys and what follows from them
	number bool // some of them are numbers
	at     int64
}

func (e *entry) String() string {
	text := e.list
	for _, k := range slices.Sorted(maps.Keys(e.keys)) {
		text += "[" + k + "=" + e.keys[k] + "]"
	}
	return text
}

// same checks that all lists of a plugin have the same rows in gNMI, InfluxDB and Prometheus: none
// is missing, and none that ended is left. All have the end of the results as their timestamp. It
// returns the number of rows.
func (p *played) same(plugin string) int {
	p.t.Helper()
	rows := p.entries(plugin)
	keysOf := map[string][]string{} // by list
	for _, e := range rows {
		keysOf[e.list] = slices.Sorted(maps.Keys(e.keys))
	}
	row := func(list string, tags map[string]string) string {
		e := entry{list: list, keys: map[string]string{}}
		for _, k := range keysOf[list] {
			e.keys[k] = tags[k]
		}
		return e.String()
	}

	stored := map[string]bool{}
	for _, s := range p.db.Query(`SELECT last("ended") FROM /^` + plugin + `\// GROUP BY *`) {
		if ended, ok := s.Values[0][slices.Index(s.Columns, "last")].(bool); !ok || ended {
			continue
		}
		name := row(s.Name, s.Tags)
		if stored[name] {
			p.t.Errorf("%s has two series in InfluxDB", name)
		}
		if stored[name] = true; rows[name] == nil {
			p.t.Errorf("InfluxDB has %s, which ended", name)
		}
	}

	exposed := map[string]bool{}
	omitted := false
	for _, s := range p.prom {
		metric := strings.ReplaceAll(s.Labels().Get(model.MetricNameLabel), "summaries", "summary") // a reserved word
		if metric == "netsketch_results_rows_omitted" {
			it := s.Iterator(nil)
			it.Next()
			_, n := it.At()
			omitted = omitted || n > 0
		}
		tags := map[string]string{}
		for name, v := range s.Labels().Map() {
			tags[strings.ReplaceAll(name, "_", "-")] = v
		}
		found := !strings.HasPrefix(metric, "netsketch_"+plugin+"_")
		for list := range keysOf { // several can be the begin of a metric's name
			if name := row(list, tags); rows[name] != nil && strings.HasPrefix(metric, metricPrefix(list)) {
				exposed[name], found = true, true
			}
		}
		if !found {
			p.t.Errorf("Prometheus has %v, whose row ended", s.Labels())
		}
	}
	end := p.rows("/" + plugin + "/summary/state")[0].number(p.t, "end-time")
	for name, e := range rows {
		if float64(e.at) != end && !slices.Contains(otherEnds, e.list) && !strings.HasPrefix(e.list, "omnimon/settled") {
			p.t.Errorf("the timestamp of %s is %d, not the end of the results, %v", name, e.at, end)
		}
		if e.fields && !stored[name] {
			p.t.Errorf("InfluxDB lacks %s", name)
		}
		if e.number && !exposed[name] && !omitted {
			p.t.Errorf("Prometheus lacks %s", name)
		}
	}
	return len(rows)
}

// metricPrefix is what the names of the metrics of a list begin with.
func metricPrefix(list string) string {
	return "netsketch_" + strings.ReplaceAll(yang.Underscores(list), "/", "_") + "_"
}

// entries returns the rows of all lists of a plugin that gNMI returns, and its containers of state.
func (p *played) entries(plugin string) map[string]*entry {
	p.t.Helper()
	out := map[string]*entry{}
	p.once("/"+plugin, gnmi.Encoding_PROTO, func(elems []*gnmi.PathElem, value *gnmi.TypedValue, at int64) {
		names, keys, keyed := []string{}, map[string]string{}, false
		if !slices.ContainsFunc(elems, func(e *gnmi.PathElem) bool { return e.GetName() == "state" }) {
			return // a key, which is in the state, too
		}
		for _, e := range elems {
			if e.GetName() == "state" {
				break
			}
			names = append(names, e.GetName())
			keyed = len(e.GetKey()) > 0
			maps.Copy(keys, e.GetKey())
		}
		e := &entry{list: yang.FlatName("/"+strings.Join(names, "/"), keyed), keys: keys}
		if known := out[e.String()]; known != nil {
			e = known
		}
		out[e.String()] = e
		e.at = at
		leaf := elems[len(elems)-1].GetName()
		if _, key := keys[leaf]; key || slices.Contains(yang.Derived(func(string) bool { return true }), leaf) {
			return
		}
		e.fields = true
		if _, text := value.GetValue().(*gnmi.TypedValue_StringVal); !text {
			e.number = true
		}
	})
	return out
}
