// SPDX-License-Identifier: Apache-2.0

package yang

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/yang/table"
)

// elems parses "/a/b[k=v]/c"; values must not contain brackets.
func elems(path string) []*gpb.PathElem {
	var out []*gpb.PathElem
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if part == "" {
			continue
		}
		name, rest, _ := strings.Cut(part, "[")
		e := &gpb.PathElem{Name: name}
		for kv := range strings.SplitSeq(rest, "[") {
			if k, v, ok := strings.Cut(strings.TrimSuffix(kv, "]"), "="); ok {
				if e.Key == nil {
					e.Key = map[string]string{}
				}
				e.Key[k] = v
			}
		}
		out = append(out, e)
	}
	return out
}

func jsonValue(s string) *gpb.TypedValue {
	return &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: []byte(s)}}
}

func TestUpdateReader(t *testing.T) {
	s := everything(t)
	text := func(v string) *gpb.TypedValue { return &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: v}} }
	number := func(v uint64) *gpb.TypedValue { return &gpb.TypedValue{Value: &gpb.TypedValue_UintVal{UintVal: v}} }
	float := func(v float64) *gpb.TypedValue {
		return &gpb.TypedValue{Value: &gpb.TypedValue_DoubleVal{DoubleVal: v}}
	}
	const eth = "/interfaces/interface[name=e1]"
	const summary = "/univmon/node-summaries/node-summary[dimension=src][node=s1]"
	for _, tt := range []struct {
		path string
		val  *gpb.TypedValue
		// expected leaves, or "!" and a part of the error; an empty lenient means the same as strict
		strict, lenient string
	}{
		{eth + "/config/description", text("to spine"), eth + `/config/description=to spine`, ""},
		{eth + "/openconfig-interfaces:config/enabled", jsonValue("true"), eth + `/config/enabled=true`, ""},
		{eth + "/state/counters/in-octets", jsonValue(`"18446744073709551615"`),
			eth + `/state/counters/in-octets=18446744073709551615`, ""},
		{eth + "/state/counters/in-octets", number(5), eth + `/state/counters/in-octets=5`, ""},
		{eth + "/state/counters/in-octets", text("5"), "! is text", eth + `/state/counters/in-octets=5`},
		{eth + "/state/counters/in-octets", text("-5"), "! is text", "! is not a uint64"},
		{eth + "/state/type", text("ethernetCsmacd"), eth + `/state/type=iana-if-type:ethernetCsmacd`, ""},
		{eth + "/state/oper-status", jsonValue(`"UP"`), eth + `/state/oper-status=UP`, ""},
		{eth + "/state/oper-status", text("openconfig-interfaces:UP"), "! is not one of",
			eth + `/state/oper-status=UP`},
		{eth + "/state/oper-status", text("SIDEWAYS"), "! is not one of", ""},
		{eth + "/state/type", text("ianaift:ethernetCsmacd"), "! is not one of",
			eth + "/state/type=iana-if-type:ethernetCsmacd"},
		{eth + "/ethernet/state/port-speed", jsonValue(`"oc-eth:SPEED_10GB"`), "! is not one of",
			eth + "/ethernet/state/port-speed=openconfig-if-ethernet:SPEED_10GB"},
		{eth + "/ethernet/state/port-speed", text("oc-eth:SPEED_0GB"), "! is not one of", ""},
		{eth + "/state/counters/in-octets", jsonValue(`1.5e10`), "! is not a uint64",
			eth + `/state/counters/in-octets=15000000000`},
		{eth + "/state/counters/in-octets", jsonValue(`1.8446744073709551615e19`), "! is not a uint64",
			eth + `/state/counters/in-octets=18446744073709551615`},
		{eth + "/state/counters/in-octets", jsonValue(`7.0`), "! is not a uint64", eth + `/state/counters/in-octets=7`},
		{eth + "/state/counters/in-octets", jsonValue(`7.5`), "! is not a uint64", ""},
		{eth + "/state/counters/in-octets", jsonValue(`1e999999999`), "! is not a uint64", ""},
		{summary + "/state/entropy", jsonValue(`"1.5e-3"`), "! is not a decimal64", summary + "/state/entropy=0.0015"},
		{eth + "/config/enabled", text("true"), "! is text", eth + "/config/enabled=true"},
		{eth + "/config/enabled", jsonValue("1"), "! is a number", eth + "/config/enabled=true"},
		{eth + "/config/enabled", number(0), "! is a number", eth + "/config/enabled=false"},
		{eth + "/config/enabled", text("False"), "! is text", eth + "/config/enabled=false"},
		{eth + "/config/enabled", jsonValue("2"), "! is a number", "! neither"},
		{eth + "/state/oper-status", jsonValue(`{"openconfig-interfaces:oper-status":"UP"}`), "! is not a value",
			eth + "/state/oper-status=UP"},
		{eth + "/state/counters", jsonValue(`{"openconfig-interfaces:counters":{"in-octets":"7"}}`),
			"! is not in the schema", eth + "/state/counters/in-octets=7"},
		{eth, jsonValue(`{"openconfig-interfaces:interface":[{"name":"e1","config":{"mtu":9000}}]}`),
			"! is not in the schema", eth + "/config/mtu=9000"},
		{eth, jsonValue(`{"openconfig-interfaces:interface":[{"name":"e2","config":{"mtu":9000}}]}`),
			"! is not in the schema", `! has "e2" as name`},
		{eth, jsonValue(`{"openconfig-interfaces:interface":[{"name":"e1"},{"name":"e2"}]}`),
			"! is not in the schema", "! JSON object"},
		{"/interfaces", jsonValue(`{"openconfig-interfaces:interfaces":{"interface":[{"name":"a","config":{"mtu":9000}}]}}`),
			"! is not in the schema", "/interfaces/interface[name=a]/config/mtu=9000"},
		{eth + "/config", jsonValue(`{"config":{"config":{"mtu":9000}}}`), "! is not in the schema", ""},
		{eth + "/config/description", jsonValue("7"), "! is a number", eth + "/config/description=7"},
		{eth + "/config/mtu", number(1 << 20), "! outside of", ""},
		{eth + "/config/mtu", jsonValue("{"), "! not JSON", ""},
		{eth + "/config/mtu", jsonValue("1 2"), "! follows", ""},
		{eth + "/config/mtu", jsonValue("null"), "! not a value", ""},
		{eth + "/config/mtu", &gpb.TypedValue{}, "! no value", ""},
		{eth + "/config/mtu", &gpb.TypedValue{Value: &gpb.TypedValue_ProtoBytes{}}, "! ProtoBytes", ""},
		{eth + "/config", text("x"), "! its value is JSON", ""},
		{eth, jsonValue(`{"name":"e1","config":{"name":"e1","enabled":false}}`),
			eth + "/config/enabled=false " + eth + "/config/name=e1", ""},
		{eth, jsonValue(`{"name":"e2"}`), `! has "e2" as name`, ""},
		{eth + "/name", text("e1"), "", ""},
		{eth + "/name", text("e2"), "! key of its entry", "-"},
		{"/interfaces/interface", jsonValue(`[{"name":"a","config":{"mtu":9000}},{"name":"b","config":{"mtu":1500}}]`),
			"/interfaces/interface[name=a]/config/mtu=9000 /interfaces/interface[name=b]/config/mtu=1500", ""},
		{"/interfaces", jsonValue(`{"interface":[{"config":{"mtu":9000}}]}`), "! not all of the keys", ""},
		{"/interfaces/interface/config/mtu", number(1), "! key name of interface is not given", ""},
		{"/interfaces/interface[name=*]/config/mtu", number(1), "! is not given", ""},
		{"/interfaces/interface[port=1]/config/mtu", number(1), "! no key", ""},
		{"/interfaces/intreface[name=e1]/config/mtu", number(1), "! is not in the schema", ""},
		{eth + "/config", jsonValue(`{"colour":"blue","mtu":1500}`), "! is not in the schema",
			eth + "/config/mtu=1500"},
		{eth + "/config", jsonValue(`[1]`), "! JSON object", ""},
		{"/openconfig-lldp:lldp/config/enabled", jsonValue("true"), "! is not in the schema",
			"/lldp/config/enabled=true"},
		{"", jsonValue(`{"openconfig-lldp:lldp":{"config":{"enabled":true}}}`), "! is not in the schema",
			"/lldp/config/enabled=true"},
		{summary + "/state/entropy", float(1.5), summary + "/state/entropy=1.5", ""},
		{summary + "/state/entropy", float(math.NaN()), "! is not a finite number", ""},
		{summary + "/state/entropy", float(math.Inf(1)), "! is not a finite number", ""},
		{summary + "/state/entropy", jsonValue(`"-Infinity"`), "! is not a finite number", ""},
		{"/lldp/interfaces/interface[name=e1]/neighbors/neighbor[id=1]/state/ttl", number(120),
			"/lldp/interfaces/interface[name=e1]/neighbors/neighbor[id=1]/state/ttl=120", ""},
	} {
		for _, lenient := range []bool{false, true} {
			want := tt.strict
			if lenient && tt.lenient != "" {
				want = strings.TrimPrefix(tt.lenient, "-")
			}
			var got []string
			var skipped error
			r := &UpdateReader{Schema: s, Found: func(u LeafUpdate) error {
				got = append(got, fmt.Sprintf("%s=%v", PathString(u.Elems), u.Value))
				return nil
			}}
			if lenient {
				r.Skip = func(leaf string, err error) {
					if !strings.HasPrefix(leaf+"/", "/") || strings.ContainsAny(leaf, "[]") {
						t.Errorf("%s: skips %q; expected a path without keys", tt.path, leaf)
					}
					skipped = err
				}
			}
			err := r.Read(elems(tt.path), tt.val)
			if lenient && err != nil {
				t.Errorf("%s %v: a lenient reader fails: %v", tt.path, tt.val, err)
			}
			if lenient {
				err = skipped
			}
			if part, bad := strings.CutPrefix(want, "! "); bad {
				if err == nil || !strings.Contains(err.Error(), part) || !strings.Contains(err.Error(), "/") {
					t.Errorf("%s %v lenient=%v: error %v; expected %q and the path", tt.path, tt.val, lenient, err,
						part)
				}
				continue
			}
			if g := strings.Join(got, " "); g != want || err != nil && !lenient {
				t.Errorf("%s %v lenient=%v: got %q, %v; expected %q", tt.path, tt.val, lenient, g, err, want)
			}
		}
	}
}

func FuzzUpdateReader(f *testing.F) {
	s := everything(f)
	f.Add("/interfaces/interface[name=e1]/config", []byte(`{"mtu":1500,"name":"e1"}`))
	f.Add("/interfaces", []byte(`{"interface":[{"name":"a","state":{"counters":{"in-octets":"7"}}}]}`))
	f.Add("/lldp/interfaces/interface[name=e1]/neighbors/neighbor", []byte(`[{"id":"1","state":{"ttl":120}}]`))
	f.Fuzz(func(t *testing.T, path string, data []byte) {
		val := &gpb.TypedValue{}
		if proto.Unmarshal(data, val) != nil {
			val = &gpb.TypedValue{Value: &gpb.TypedValue_JsonVal{JsonVal: data}}
		}
		for _, lenient := range []bool{false, true} {
			var skipped []error
			r := &UpdateReader{Schema: s, Found: func(u LeafUpdate) error {
				kinds := map[string]table.Kind{"uint64": table.Uint64, "int64": table.Int64, "float64": table.Float64,
					"bool": table.Bool, "string": table.String}
				if kinds[fmt.Sprintf("%T", u.Value)] != u.Leaf.Kind() {
					t.Fatalf("%s: %T for a leaf of kind %s", PathString(u.Elems), u.Value, u.Leaf.Kind())
				}
				if len(u.Elems) == 0 || u.Leaf.Node.Name != u.Elems[len(u.Elems)-1].GetName() {
					t.Fatalf("%s is not the path of %s", PathString(u.Elems), u.Leaf.Node.Path)
				}
				return nil
			}}
			if lenient {
				r.Skip = func(leaf string, err error) {
					if len(leaf) > 300 {
						t.Fatalf("a leaf path of %d bytes", len(leaf))
					}
					skipped = append(skipped, err)
				}
			}
			if err := r.Read(elems(path), val); err != nil && lenient {
				t.Fatalf("a lenient reader fails: %v", err)
			}
			for _, err := range skipped {
				if err == nil || errors.Is(err, ErrUnknownPath) && err.Error() == "" {
					t.Fatal("skipped for nothing")
				}
			}
		}
	})
}
