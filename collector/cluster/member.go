// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
	"github.com/netsketch/netsketch/collector/cluster/ownership"
)

// maxLease bounds the description of a member in bytes.
const maxLease = 64 << 10

// maxWeight bounds Member.Weight.
const maxWeight = 1 << 20

// State is whether a member takes part.
type State string

// The states of a member.
const (
	// Active members own devices, hosts and plugins.
	Active State = "active"
	// Draining members own nothing and go on to serve results.
	Draining State = "draining"
	// Refused members own nothing: their configuration or version differs.
	Refused State = "refused"
	// Left members have ended.
	Left State = "left"
)

// Member is a collector of the cluster, as its lease describes it.
type Member struct {
	// Name is the member's name, unique in the cluster.
	Name string `json:"name"`
	// Incarnation differs with each start of the collector.
	Incarnation string `json:"incarnation"`
	// Protocol is the version of the messages between members (clusterv1.Version), 0 if the lease
	// cannot be read. Version is the version of the program.
	Protocol uint32 `json:"protocol"`
	Version  string `json:"version"`
	// Weight is the member's share of devices, hosts and plugins relative to other members.
	Weight int `json:"weight"`
	// State says whether the member takes part, and Reason why it is refused.
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"`
	// Since is the first epoch from which State holds for plugins and hosts, so that all members
	// agree on where each epoch is analyzed. Before that epoch, a draining member still owns
	// plugins and hosts, and an active member owns none yet. With 0, State holds from the start.
	Since uint64 `json:"since,omitempty"`
	// Drained is set when a draining member has handed everything over.
	Drained bool `json:"drained,omitempty"`
	// Started is when the collector started, by its own clock.
	Started time.Time `json:"started"`
	// Agents is the address for host agents; "" if they are not served.
	Agents string `json:"agents,omitempty"`
	// Digests are the digests, by name, of the sections of the configuration that all members must
	// share.
	Digests map[string]string `json:"digests,omitempty"`
	// Offset is the time by which the member's clock is ahead of the NATS server's clock, within
	// Uncertainty.
	Offset      time.Duration `json:"offset_ns"`
	Uncertainty time.Duration `json:"uncertainty_ns"`
}

// Active reports whether the member can own anything.
func (m Member) Active() bool { return m.State == Active && m.Weight > 0 }

// encode returns the member as a lease or a beat.
func (m Member) encode() ([]byte, error) {
	return proto.Marshal(&clusterv1.Member{Name: m.Name, Incarnation: m.Incarnation, Protocol: m.Protocol,
		Version: m.Version, Weight: uint32(m.Weight), State: string(m.State), Reason: m.Reason, Since: m.Since,
		Drained: m.Drained, StartedUnixNs: m.Started.UnixNano(), Agents: m.Agents, Digests: m.Digests,
		OffsetNs: int64(m.Offset), UncertaintyNs: int64(m.Uncertainty)})
}

// decodeMember reads a lease or a beat. From a member of another version, decodeMember takes only
// the fields that all versions have.
func decodeMember(data []byte) (Member, error) {
	var m clusterv1.Member
	if len(data) > maxLease {
		return Member{}, fmt.Errorf("a description of %d bytes; at most %d are possible", len(data), maxLease)
	}
	if err := proto.Unmarshal(data, &m); err != nil {
		return Member{}, err
	}
	if m.GetName() == "" || m.GetIncarnation() == "" || m.GetWeight() > maxWeight || m.GetState() == "" {
		return Member{}, fmt.Errorf("name %q, incarnation %q, weight %d and state %q; expected all of them", m.GetName(),
			m.GetIncarnation(), m.GetWeight(), m.GetState())
	}
	return Member{Name: m.GetName(), Incarnation: m.GetIncarnation(), Protocol: m.GetProtocol(), Version: m.GetVersion(),
		Weight: int(m.GetWeight()), State: State(m.GetState()), Reason: m.GetReason(), Since: m.GetSince(),
		Drained: m.GetDrained(), Started: time.Unix(0, m.GetStartedUnixNs()).UTC(), Agents: m.GetAgents(),
		Digests: m.GetDigests(), Offset: time.Duration(m.GetOffsetNs()), Uncertainty: time.Duration(m.GetUncertaintyNs()),
	}, nil
}

// unreadable returns a member whose lease cannot be read. Such a member owns nothing.
func unreadable(name string) Member {
	return Member{Name: name, State: Active, Version: "unreadable"}
}

// before reports whether a member was started before another one.
func (m Member) before(other Member) bool {
	return m.Started.Before(other.Started) || m.Started.Equal(other.Started) && m.Name < other.Name
}

// conflict returns why two members cannot share devices; "" if they can.
func (m Member) conflict(other Member) string {
	if m.Protocol != other.Protocol {
		return fmt.Sprintf("member %s has version %d of the cluster's messages (netsketch %s), and this one has %d (%s); "+
			"stop all members, and start them with one release", other.Name, other.Protocol, other.Version, m.Protocol,
			m.Version)
	}
	var differ []string
	for section, digest := range m.Digests {
		if d, ok := other.Digests[section]; ok && d != digest {
			differ = append(differ, section)
		}
	}
	if len(differ) == 0 {
		return ""
	}
	slices.Sort(differ)
	return fmt.Sprintf("the configuration differs from that of member %s in %s; give all members of a cluster the same "+
		"file, or another cluster.name", other.Name, strings.Join(differ, ", "))
}

// View is the membership of the cluster as a member sees it.
type View struct {
	// Self is the name of this member.
	Self string
	// Fence grows with each view that moves a device, host or plugin; it is above the fence of every
	// earlier owner.
	Fence uint64
	// Leased reports that this member holds its lease. Without a lease, the member keeps its devices,
	// takes over none and writes no entries, because the other members may have taken over.
	Leased bool
	// Members are all members, sorted by name.
	Members []Member
}

// Owner returns the owner of a key: "device/NAME", "host/NAME" or "plugin/NAME".
func (v View) Owner(key string) string { return Owner(key, v.Members) }

// Device, Host and Plugin return the owner of a device, host or plugin; "" if nobody owns it.
func (v View) Device(name string) string { return v.Owner(deviceKey(name)) }
func (v View) Host(name string) string   { return v.Owner(hostKey(name)) }
func (v View) Plugin(name string) string { return v.Owner(pluginKey(name)) }

// Ownership returns what package ownership needs of the view to decide about a device.
func (v View) Ownership(device string) ownership.View {
	out := ownership.View{Self: v.Self, Leased: v.Leased, Owner: v.Device(device)}
	var others []Member
	for _, m := range v.Members {
		if m.State != Refused { // a member that is not refused can hand a device over or take it
			out.Present = append(out.Present, m.Name)
		}
		if m.State == Draining { // a draining member may not have handed over everything
			m.State = Active
		}
		if m.Name != v.Self {
			others = append(others, m)
		}
	}
	out.Before = Owner(deviceKey(device), others)
	return out
}

// Present reports whether a member is there and not refused.
func (v View) Present(name string) bool {
	m, ok := v.Member(name)
	return ok && m.State != Refused
}

// In returns the view that decides the owners of plugins and hosts in an epoch: each member has its
// state as of that epoch (Member.Since).
func (v View) In(epoch uint64) View {
	next, active := v, false
	next.Members = slices.Clone(v.Members)
	for i := range next.Members {
		m := &next.Members[i]
		switch {
		case epoch >= m.Since:
		case m.State == Draining:
			m.State = Active
		case m.State == Active:
			m.State = Draining
		}
		active = active || m.Active()
	}
	if !active { // all members have just started
		return v
	}
	return next
}

// Changes reports whether plugins or hosts move at the start of an epoch later than after and not
// later than until.
func (v View) Changes(after, until uint64) bool {
	return slices.ContainsFunc(v.Members, func(m Member) bool { return after < m.Since && m.Since <= until })
}

// Member returns the member of a name.
func (v View) Member(name string) (Member, bool) {
	i, ok := slices.BinarySearchFunc(v.Members, name, func(m Member, name string) int {
		return strings.Compare(m.Name, name)
	})
	if !ok {
		return Member{}, false
	}
	return v.Members[i], true
}

// sameOwners reports whether two views have the same owners of everything, and the same
// incarnations and addresses of members.
func (v View) sameOwners(other View) bool {
	return v.Leased == other.Leased && slices.EqualFunc(v.Members, other.Members, func(a, b Member) bool {
		return a.Name == b.Name && a.Incarnation == b.Incarnation && a.State == b.State && a.Weight == b.Weight &&
			a.Since == b.Since && a.Agents == b.Agents && maps.Equal(a.Digests, b.Digests)
	})
}
