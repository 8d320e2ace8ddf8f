// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/settings"
)

// complete derives values that the file does not give from other values.
func (c *Cluster) complete(agents string) {
	if c.Name == "" {
		return
	}
	if c.Member == "" {
		c.Member, _ = os.Hostname() // without a name, the check below reports the missing key
	}
	if host, _, err := net.SplitHostPort(agents); c.AgentsAddress == "" && err == nil && host != "" {
		c.AgentsAddress = agents
	}
}

// clusterName returns an error if a text cannot be the name of a cluster.
func clusterName(name string) error {
	if strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}) {
		return fmt.Errorf("expected letters, digits, dashes and underscores; found %q", name)
	}
	return nil
}

func (c Cluster) check(k checker, epoch Epoch, agents Agents) {
	n := c.NATS
	if c.Name == "" {
		if k.Given("cluster") {
			k.reject("cluster.name", "is missing; expected the name of the cluster")
		}
		return
	}
	if err := clusterName(c.Name); err != nil {
		k.reject("cluster.name", "%s", err)
	}
	if err := settings.CheckName(c.Member); err != nil {
		k.reject("cluster.member", "%s", err)
	}
	if !epoch.Align {
		k.reject("epoch.align", "is false; members of a cluster agree on epochs by their clocks: expected true")
	}
	if agents.Address != "" && c.AgentsAddress == "" {
		k.reject("cluster.agents-address", "is missing, and agents.address %s has no host; expected where agents reach this "+
			"collector, such as 192.0.2.1:9350", agents.Address)
	}
	if len(n.Addresses) == 0 && n.Embedded.Listen == "" {
		k.reject("cluster.nats.addresses", "is missing; expected a list of host:port, such as [192.0.2.1:4222], or an "+
			"embedded server")
	}
	for i, a := range n.Addresses {
		if err := settings.CheckAddress(a); err != nil {
			k.reject(fmt.Sprintf("cluster.nats.addresses[%d]", i), "%s", err)
		}
	}
	n.TLS.check(k, "cluster.nats.tls")
	if (n.Username == "") != (n.Password == "") {
		k.reject("cluster.nats.username", "expected username and password, or neither")
	}
	if n.Username != "" && n.CredentialsFile != "" {
		k.reject("cluster.nats.credentials-file", "is given with a username; expected one of the two")
	}
	e := n.Embedded
	switch {
	case e.Listen == "" && (e.Directory != "" || e.RouteListen != "" || len(e.Routes) > 0):
		k.reject("cluster.nats.embedded.listen", "is missing; expected host:port, such as :4222")
	case e.Listen != "" && e.Directory == "":
		k.reject("cluster.nats.embedded.directory", "is missing; expected a directory for the state of the server")
	case e.Listen != "" && !n.TLS.Plaintext:
		k.reject("cluster.nats.tls", "an embedded server accepts plaintext only; expected tls: {plaintext: true}, or "+
			"servers of their own")
	case (e.RouteListen == "") != (len(e.Routes) == 0):
		k.reject("cluster.nats.embedded.routes", "route-listen and routes belong together; one is missing")
	}
	for i, a := range e.Routes {
		if err := settings.CheckAddress(a); err != nil {
			k.reject(fmt.Sprintf("cluster.nats.embedded.routes[%d]", i), "%s", err)
		}
	}
}

// sharedSections are the sections that all members of a cluster must have in common.
var sharedSections = []string{"epoch", "device-defaults", "devices", "links", "hosts", "plugins"}

// Digests returns a digest of each section that all members of a cluster must have in common:
// comments, order of keys and form of the text do not count.
func (c *Config) Digests() map[string]string { return c.text.digests }

// digestsOf computes the result of Digests.
func digestsOf(root *settings.Node) map[string]string {
	out := map[string]string{}
	for _, section := range sharedSections {
		h := sha256.New()
		n := root.Get(section)
		if section == "plugins" && n != nil {
			n = n.Get("instances") // the plugins' directories may differ between members
		}
		if n != nil {
			digest(h, n)
		}
		out[section] = hex.EncodeToString(h.Sum(nil)[:8])
	}
	return out
}

// digest writes the value of a node.
func digest(h hash.Hash, n *settings.Node) {
	switch n.Kind {
	case settings.Scalar:
		fmt.Fprintf(h, "%q", n.Text)
	case settings.List:
		fmt.Fprint(h, "[")
		for _, item := range n.Items {
			digest(h, item)
			fmt.Fprint(h, ",")
		}
		fmt.Fprint(h, "]")
	case settings.Mapping:
		keys := slices.SortedFunc(slices.Values(n.Keys),
			func(a, b settings.Key) int { return strings.Compare(a.Name, b.Name) })
		fmt.Fprint(h, "{")
		for _, k := range keys {
			fmt.Fprintf(h, "%q:", k.Name)
			digest(h, k.Value)
			fmt.Fprint(h, ",")
		}
		fmt.Fprint(h, "}")
	}
}
