// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"sync"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/yang"
)

// switchSchema is what can be republished of a switch.
var switchSchema = sync.OnceValues(func() (*yang.Schema, error) { return yang.Load(yang.SwitchModules()...) })

func (g GNMI) check(k checker, at string) {
	if g.Address == "" {
		for _, key := range []string{"username", "password", "tls", "subscriptions"} {
			if k.given(at + "." + key) {
				k.add(at+".address", "is missing; expected host:port of the switch's gNMI server, such as 192.0.2.1:9339")
				break
			}
		}
	} else {
		k.address(at+".address", g.Address)
	}
	if (g.Username == "") != (g.Password == "") {
		k.add(at+".username", "expected username and password, or neither")
	}
	g.TLS.check(k, at+".tls")
	for i, s := range g.Subscriptions {
		s.check(k, fmt.Sprintf("%s.subscriptions[%d]", at, i))
	}
}

func (s Subscription) check(k checker, at string) {
	if s.Path == "" {
		k.add(at+".path", "is missing; expected a gNMI path such as /interfaces/interface/state/counters")
	} else if _, err := s.ParsePath(); err != nil {
		k.add(at+".path", "%s", err)
	}
	if s.Mode == ModeSample {
		k.within(at+".sample-interval", s.SampleInterval, time.Millisecond, 24*time.Hour)
	} else if k.given(at + ".sample-interval") {
		k.add(at+".sample-interval", "is for mode sample; the mode is %s", s.Mode)
	}
}

// ParsePath returns the path of a subscription, or why it is none or cannot be
// republished.
func (s Subscription) ParsePath() (*gpb.Path, error) {
	p, err := yang.ParsePath(s.Path)
	if err != nil {
		return nil, fmt.Errorf("expected a gNMI path; %s", strings.TrimPrefix(err.Error(), "yang: "))
	}
	schema, err := switchSchema()
	if err != nil {
		return nil, err
	}
	if err := schema.CheckPath(nil, p); err != nil {
		return nil, fmt.Errorf("no model of a switch has it: %s", strings.TrimPrefix(err.Error(), "yang: "))
	}
	return p, nil
}
