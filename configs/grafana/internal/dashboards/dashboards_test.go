// SPDX-License-Identifier: Apache-2.0

//go:build dashboards

package dashboards

import (
	"bytes"
	"os"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func TestMain(m *testing.M) {
	Register()
	os.Exit(m.Run())
}

// load decodes a dashboard strictly with Grafana's schema.
func load(t *testing.T, text []byte) dashboard.Dashboard {
	t.Helper()
	var d dashboard.Dashboard
	if err := d.UnmarshalJSONStrict(text); err != nil {
		t.Fatal(err)
	}
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestStrict(t *testing.T) {
	files, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	uids := map[string]bool{}
	for name, text := range files {
		d := load(t, text)
		if d.Uid == nil || uids[*d.Uid] {
			t.Errorf("%s: uid %v", name, d.Uid)
		}
		uids[*d.Uid] = true
		ids, titles := map[uint32]bool{}, map[string]bool{}
		var taken [400][24]bool
		for _, p := range d.Panels {
			var id uint32
			var at dashboard.GridPos
			var title string
			if p.Panel != nil {
				id, at, title = *p.Panel.Id, *p.Panel.GridPos, *p.Panel.Title
				if p.Panel.Description == nil || *p.Panel.Description == "" {
					t.Errorf("%s: panel %s has no description", name, title)
				}
				if p.Panel.Datasource == nil || *p.Panel.Datasource.Uid != "${datasource}" ||
					*p.Panel.Datasource.Type != "influxdb" {
					t.Errorf("%s: panel %s is bound to a data source", name, title)
				}
				if len(p.Panel.Targets) == 0 {
					t.Errorf("%s: panel %s has no query", name, title)
				}
				title = p.Panel.Type + title
			} else {
				id, at, title = p.RowPanel.Id, *p.RowPanel.GridPos, "row"+*p.RowPanel.Title
			}
			if ids[id] || titles[title] {
				t.Errorf("%s: panel %d, %s, occurs twice", name, id, title)
			}
			ids[id], titles[title] = true, true
			for y := at.Y; y < at.Y+at.H; y++ {
				for x := at.X; x < at.X+at.W; x++ {
					if x >= 24 || taken[y][x] {
						t.Fatalf("%s: panel %s overlaps another one or the edge", name, title)
					}
					taken[y][x] = true
				}
			}
		}
	}
	bad := bytes.Replace(files["netsketch-univmon.json"], []byte(`"rawQuery"`), []byte(`"rawQueri"`), 1)
	var d dashboard.Dashboard
	if err := d.UnmarshalJSONStrict(bad); err == nil {
		t.Error("a misspelled key was accepted")
	}
}
