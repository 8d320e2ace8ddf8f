// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	hostkernel "github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/hostagent/lease"
	"github.com/netsketch/netsketch/hostagent/omnimon/mapping"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
)

const (
	pageSlots = 64      // slots of incoming flows in a page
	maxCells  = 1 << 28 // most places of the directory
	minHosts  = 64      // least number of hosts that the maps have room for
	manyHosts = 1024    // with more hosts, the directory has places for the pages in use only
)

// tables are the maps of one flow table; maps that are arrays are in the memory of this process.
type tables struct {
	maps            map[string]*ebpf.Map
	egress, ingress *ebpf.Program

	control          *omnimonControlBlock
	buckets          []omnimonBucket
	seed             uint64 // seed of the hash that selects buckets
	entries          []omnimonFlowEntry
	outgoing         []omnimonFlowSlot
	leases           []omnimonLease
	numbers          map[netip.Addr]uint32 // numbers of addresses, which select leases
	peers            []lease.Peer          // addresses by number
	hosts            []omnimonAddress      // the map hosts
	incoming         []omnimonFlowSlot
	owners           []uint64
	shared, mappings []uint64
	memory           hostkernel.Memory

	generations uint64
	flows       uint64 // entries
	pages       uint64 // per generation
	cells       uint32 // cells of the directory for each host
	maxHosts    int    // number of hosts that the maps have room for
	copies      *ringbuf.Reader
	flowlets    []omnimonFlowlet
	tailCalls   bool // the kernel runs queries
	probes      *ringbuf.Reader
	barrier     *hostkernel.Barrier
	synchronous bool // tests run programs only between calls of the Path
}

// load creates the maps and loads the programs.
func load(s *wire.Settings, share *mapping.Share, generations int) (*tables, error) {
	spec, err := loadOmnimon()
	if err != nil {
		return nil, err
	}
	hosts := max(minHosts, 1<<bits.Len(uint(len(s.Hosts)-1)))
	addresses := 0
	for _, list := range s.Hosts {
		addresses += len(list)
	}
	n := int(min(share.Len(), uint64(s.Flows)))
	pages, cells := (s.IngressSlots+pageSlots-1)/pageSlots, (s.Flows+pageSlots-1)/pageSlots
	places, claims := hosts*cells, 1
	if sparse := 8 << bits.Len(uint(pages-1)); hosts > manyHosts && sparse < places {
		places, claims = sparse, generations*sparse
	}
	if uint64(generations)*uint64(places) > maxCells || uint64(hosts)*uint64(cells) >= 1<<32 {
		return nil, fmt.Errorf("%d hosts with %d flows in %d generations need %d places for %d cells; at most %d for 2^32: "+
			"reduce flows or generations", hosts, s.Flows, generations, uint64(generations)*uint64(places),
			uint64(hosts)*uint64(cells), maxCells)
	}
	if uint64(generations)*uint64(pages)*pageSlots > 1<<31 {
		return nil, fmt.Errorf("ingressSlots: %d in %d generations: at most 2^31 in all", s.IngressSlots, generations)
	}
	for name, size := range map[string]int{
		omnimonMapBuckets: bucketsFor(s.Flows), omnimonMapEntries: s.Flows,
		omnimonMapOutgoing: generations * s.Flows,
		omnimonMapIncoming: generations * pages * pageSlots, omnimonMapDirectory: generations * places,
		omnimonMapClaims: claims,
		omnimonMapOwners: generations * pages,
		omnimonMapHosts:  placesFor(max(4*hosts, 2*addresses)), omnimonMapLeases: max(4*hosts, 2*addresses),
		omnimonMapFreeIndexes: s.Flows, omnimonMapFreeMappings: n, omnimonMapShared: 2 * n, omnimonMapMappings: n,
		omnimonMapBegun: s.Flows, omnimonMapEndings: s.Flows,
		omnimonMapFlowlets: s.Flows,
	} {
		spec.Maps[name].MaxEntries = uint32(size)
	}
	var fields, minima [wire.MaxExtremes]uint8
	for i, e := range s.Extremes {
		fields[i] = map[wire.Field]uint8{wire.FieldLength: 0, wire.FieldTTL: 1, wire.FieldWindow: 2}[e.Field]
		if e.Min {
			minima[i] = 1
		}
	}
	seed := rand.Uint64()
	if err := hostkernel.SetVariables(spec, map[string]any{
		"carrier": carriers[s.Carrier], "keep_mss": boolean(s.KeepMSS), "hash_seed": seed,
		"bucket_mask": uint32(bucketsFor(s.Flows) - 1), "index_mask": indexMask(s.Flows),
		"host_mask": spec.Maps[omnimonMapHosts].MaxEntries - 1, "ether_type": s.EtherType, "own_host": uint16(s.Host),
		"slots_per_flow": uint32(s.SlotsPerFlow), "extremes": uint32(len(s.Extremes)), "fields": fields,
		"minima": minima, "flow_limit": uint32(s.Flows), "mapping_limit": uint32(n),
		"page_limit": uint32(pages), "pages_per_host": uint32(cells),
		"host_limit": uint32(hosts), "places": uint32(places), "generations": uint32(generations),
	}); err != nil {
		return nil, err
	}
	hostkernel.Name(spec, wire.Role)
	c, tailCalls, err := create(spec)
	if err != nil {
		return nil, hostkernel.Explain(err, "flows, ingressSlots or generations")
	}
	t := &tables{maps: c.Maps, egress: c.Programs[omnimonProgEgress], ingress: c.Programs[omnimonProgIngress], seed: seed,
		tailCalls: tailCalls}
	err = t.maps[omnimonMapQueries].Put(uint32(copyProgram), c.Programs[omnimonProgCopy])
	if err := errors.Join(err, c.Programs[omnimonProgCopy].Close(), t.open(generations, hosts)); err != nil {
		t.close()
		return nil, err
	}
	for i := range t.mappings {
		slots := share.At(uint64(i))
		t.mappings[i] = uint64(slots[0]) | uint64(slots[1])<<16 | uint64(slots[2])<<32 | uint64(slots[3])<<48
		t.shared[i] = uint64(i)
	}
	return t, nil
}

// create creates maps and programs, with tail calls if the kernel supports them together with
// functions.
func create(spec *ebpf.CollectionSpec) (c *ebpf.Collection, tailCalls bool, err error) {
	for _, tailCalls = range []bool{true, false} {
		if err := spec.Variables["tail_calls"].Set(tailCalls); err != nil {
			return nil, false, fmt.Errorf("variable tail_calls: %w", err)
		}
		folded := spec.Copy()
		hostkernel.Fold(folded)
		if c, err = ebpf.NewCollection(folded); err == nil || errors.Is(err, unix.EPERM) {
			break
		}
	}
	return c, tailCalls, err
}

// carriers are the numbers of the carriers in bpf/omnimon.c.
var carriers = map[wire.Carrier]uint8{"": 0, wire.CarrierShim: 0, wire.CarrierOption: 1, wire.CarrierTunnel: 2}

func boolean(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// adopt opens the maps that an earlier process pinned in a directory.
func adopt(dir string, s *saved) (*tables, error) {
	t := &tables{maps: map[string]*ebpf.Map{}, seed: s.Seed, tailCalls: s.TailCalls}
	spec, err := loadOmnimon()
	if err != nil {
		return nil, err
	}
	for name := range spec.Maps {
		if !state(name) {
			continue
		}
		if t.maps[name], err = ebpf.LoadPinnedMap(dir+"/"+name, nil); err != nil {
			t.close()
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
	}
	var errs [2]error
	t.egress, errs[0] = ebpf.LoadPinnedProgram(dir+"/program_"+omnimonProgEgress, nil)
	t.ingress, errs[1] = ebpf.LoadPinnedProgram(dir+"/program_"+omnimonProgIngress, nil)
	if err := errors.Join(errs[0], errs[1], t.open(s.Generations, s.Hosts), t.readHosts()); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// state reports whether a map holds more than constants of the programs.
func state(name string) bool { return name[0] != '.' }

func (t *tables) pin(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, m := range t.maps {
		if !state(name) {
			continue
		}
		if err := m.Pin(dir + "/" + name); err != nil {
			return err
		}
	}
	return errors.Join(t.egress.Pin(dir+"/program_"+omnimonProgEgress),
		t.ingress.Pin(dir+"/program_"+omnimonProgIngress))
}

func (t *tables) open(generations, hosts int) error {
	t.generations, t.maxHosts = uint64(generations), hosts
	t.flows = uint64(t.maps[omnimonMapEntries].MaxEntries())
	t.pages = uint64(t.maps[omnimonMapOwners].MaxEntries()) / t.generations
	t.cells = uint32((t.flows + pageSlots - 1) / pageSlots)
	control, err := hostkernel.View[omnimonControlBlock](&t.memory, t.maps[omnimonMapControl], omnimonMapControl)
	if err != nil {
		return err
	}
	t.control = &control[0]
	var errs [9]error
	t.entries, errs[0] = hostkernel.View[omnimonFlowEntry](&t.memory, t.maps[omnimonMapEntries], omnimonMapEntries)
	t.outgoing, errs[8] = hostkernel.View[omnimonFlowSlot](&t.memory, t.maps[omnimonMapOutgoing], omnimonMapOutgoing)
	t.hosts, errs[1] = hostkernel.View[omnimonAddress](&t.memory, t.maps[omnimonMapHosts], omnimonMapHosts)
	t.incoming, errs[2] = hostkernel.View[omnimonFlowSlot](&t.memory, t.maps[omnimonMapIncoming], omnimonMapIncoming)
	t.owners, errs[3] = hostkernel.View[uint64](&t.memory, t.maps[omnimonMapOwners], omnimonMapOwners)
	t.shared, errs[4] = hostkernel.View[uint64](&t.memory, t.maps[omnimonMapShared], omnimonMapShared)
	t.mappings, errs[5] = hostkernel.View[uint64](&t.memory, t.maps[omnimonMapMappings], omnimonMapMappings)
	t.buckets, errs[6] = hostkernel.View[omnimonBucket](&t.memory, t.maps[omnimonMapBuckets], omnimonMapBuckets)
	t.leases, errs[7] = hostkernel.View[omnimonLease](&t.memory, t.maps[omnimonMapLeases], omnimonMapLeases)
	t.flowlets, errs[8] = hostkernel.View[omnimonFlowlet](&t.memory, t.maps[omnimonMapFlowlets], omnimonMapFlowlets)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	t.numbers = map[netip.Addr]uint32{}
	if t.probes, err = ringbuf.NewReader(t.maps[omnimonMapProbes]); err != nil {
		return fmt.Errorf("map probes: %w", err)
	}
	if t.copies, err = ringbuf.NewReader(t.maps[omnimonMapCopies]); err != nil {
		return fmt.Errorf("map copies: %w", err)
	}
	t.copies.SetDeadline(time.Unix(1, 0)) // reads do not wait
	t.barrier, err = hostkernel.NewBarrier()
	return err
}

// wait returns when every program that runs now has ended.
func (t *tables) wait() error {
	if t.synchronous {
		return nil
	}
	return t.barrier.Wait()
}

func (t *tables) close() {
	t.memory.Unmap()
	for _, m := range t.maps {
		_ = m.Close()
	}
	for _, c := range []interface{ Close() error }{t.egress, t.ingress, t.barrier} {
		_ = c.Close() // nil is valid
	}
	for _, r := range []*ringbuf.Reader{t.copies, t.probes} {
		if r != nil {
			_ = r.Close()
		}
	}
	t.control = nil
}

// match sets the string that payloads are searched for, as an automaton (Knuth, Morris, Pratt).
func (t *tables) match(s string) error {
	atomic.StoreUint32(&t.control.Match, 0)
	if s == "" {
		return nil
	}
	if err := t.wait(); err != nil {
		return err
	}
	next := make([]byte, 1<<16)
	failure := 0
	for state := range s {
		copy(next[state<<8:state<<8+256], next[failure<<8:])
		next[state<<8|int(s[state])] = byte(state + 1)
		if state > 0 {
			failure = int(next[failure<<8|int(s[state])])
		}
	}
	for i := range 256 {
		next[len(s)<<8|i] = byte(len(s))
	}
	if err := t.maps[omnimonMapAutomaton].Put(uint32(0), next); err != nil {
		return fmt.Errorf("map automaton: %w", err)
	}
	atomic.StoreUint32(&t.control.Match, uint32(len(s)))
	return nil
}

// setHosts makes the map hosts equal to the settings. An address keeps its number.
func (t *tables) setHosts(hosts [][]netip.Addr) error {
	for host, list := range hosts {
		for _, ip := range list {
			n, ok := t.numbers[ip]
			if !ok {
				n = uint32(len(t.numbers))
				t.numbers[ip] = n
				t.peers = append(t.peers, lease.Peer{Host: host, Address: ip})
			}
			if err := t.setHost(ip, uint32(host), n); err != nil {
				return err
			}
		}
	}
	return nil
}

// setHost writes an address into the map hosts, from the place on that its hash selects.
func (t *tables) setHost(ip netip.Addr, host, number uint32) error {
	var b [16]byte
	copy(b[:], ip.AsSlice())
	a := omnimonAddress{Kind: kindIPv4, Host: host, Number: number,
		Bytes: [2]uint64{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])}}
	if ip.Is6() {
		a.Kind = kindIPv6
	}
	h := step(a.Bytes[0], a.Bytes[1])
	if near := &t.control.Sources[h%uint64(len(t.control.Sources))]; ip.Is4() {
		atomic.CompareAndSwapUint64(near, 0, a.Bytes[0]<<32|uint64(host+1))
	}
	for i := range uint64(maxPlaces) {
		at := &t.hosts[(h+i)%uint64(len(t.hosts))]
		kind := atomic.LoadUint32(&at.Kind)
		if kind == a.Kind && at.Bytes == a.Bytes {
			return nil
		}
		if kind == 0 {
			at.Bytes, at.Host, at.Number = a.Bytes, host, number
			atomic.StoreUint32(&at.Kind, a.Kind) // written after the other fields
			return nil
		}
	}
	return fmt.Errorf("address %s: the map hosts has no place for it", ip)
}

// lease returns the lease with a number.
func (t *tables) lease(number uint32) *omnimonLease {
	if near := t.control.Leases[:]; number < uint32(len(near)) {
		return &near[number]
	}
	return &t.leases[number]
}

// readHosts reads the numbers of addresses from the map hosts.
func (t *tables) readHosts() error {
	for i := range t.hosts {
		a := &t.hosts[i]
		var b [16]byte
		binary.LittleEndian.PutUint64(b[:], a.Bytes[0])
		binary.LittleEndian.PutUint64(b[8:], a.Bytes[1])
		ip := netip.AddrFrom16(b)
		switch a.Kind {
		case kindIPv4:
			ip = netip.AddrFrom4([4]byte(b[:4]))
		case kindIPv6:
		default:
			continue
		}
		t.numbers[ip] = a.Number
		t.peers = append(t.peers, make([]lease.Peer, max(0, int(a.Number)+1-len(t.peers)))...)
		t.peers[a.Number] = lease.Peer{Host: int(a.Host), Address: ip}
	}
	return nil
}
