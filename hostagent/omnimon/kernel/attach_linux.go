// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	hostkernel "github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/hostagent/omnimon"
	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
)

// Names below Config.Pin.
const (
	pinnedMaps     = "maps"
	pinnedSettings = "settings"
)

func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail
	return time.Duration(t.Nano())
}

// attach makes the interface run the programs of t, which count for settings s. Programs that are
// attached are replaced without a gap.
func (p *Path) attach(t *tables, s *wire.Settings) error {
	return p.attachment.Set(func() error { return p.prepare(s) }, hooksOf(t)...)
}

// hooksOf returns the programs and where they run. Arriving packets are stripped before this host
// sends, and before other programs see them.
func hooksOf(t *tables) []hostkernel.Hook {
	return []hostkernel.Hook{{Name: omnimonProgIngress, Program: t.ingress, At: ebpf.AttachTCXIngress, First: true},
		{Name: omnimonProgEgress, Program: t.egress, At: ebpf.AttachTCXEgress}}
}

// ConfigOf returns the configuration of this role, made from the configuration that all roles of
// the agent share.
func ConfigOf(c hostkernel.Config) Config {
	return Config{Interface: c.Interface, Pin: c.Pin, Generic: c.Generic, Clsact: c.Clsact, State: c.State,
		DisableOffloads: c.DisableOffloads, Logger: c.Logger}
}

// Strip attaches program ingress, which only strips arriving packets, and leaves it to the agent
// that starts later. Without settings, headers have the sizes of default settings.
func Strip(c hostkernel.Config, settings []byte) error {
	s := &wire.Settings{EtherType: header.DefaultEtherType, SlotsPerFlow: 2}
	if settings != nil {
		var err error
		if s, err = wire.ParseSettings(settings); err != nil {
			return err
		}
	}
	t, err := loadSmall(s)
	if err != nil {
		return err
	}
	defer t.close()
	return hostkernel.Strip(c, hooksOf(t)[0])
}

// frame returns the configuration that all roles share.
func (c *Config) frame() hostkernel.Config {
	return hostkernel.Config{Role: wire.Role, Interface: c.Interface, Pin: c.Pin, Generic: c.Generic, Clsact: c.Clsact,
		DisableOffloads: c.DisableOffloads, State: c.State, Logger: c.Logger}
}

// changed is called when the interface has gone with the programs, and when they are attached to a
// new one: packets passed meanwhile without being counted, so the epochs are inexact.
func (p *Path) changed(attached bool) {
	now := p.Epoch()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !attached {
		p.gone = now
	}
	for e := p.gone; attached && e <= now; e++ {
		p.restarts[e]++
	}
}

// saved describes the pinned tables.
type saved struct {
	Program     string // digest of the object
	Generations int
	Hosts       int
	Seed        uint64
	TailCalls   bool
	Settings    []byte
}

func objectDigest() string {
	sum := sha256.Sum256(_OmnimonBytes)
	return hex.EncodeToString(sum[:])
}

// save pins the tables in force.
func (p *Path) save() error {
	common := p.cfg.frame()
	common.Keep(p.raw)
	if p.cfg.Pin == "" {
		return nil
	}
	dir := filepath.Join(p.cfg.Pin, pinnedMaps)
	old, err := ebpf.LoadPinnedMap(filepath.Join(dir, omnimonMapControl), nil)
	same := false
	if err == nil {
		a, errA := old.Info()
		b, errB := p.tables.maps[omnimonMapControl].Info()
		if errA == nil && errB == nil {
			idA, _ := a.ID()
			idB, _ := b.ID()
			same = idA == idB
		}
		_ = old.Close()
	}
	if !same {
		fresh := dir + "-new" // a BPF file system has no names with dots
		err := errors.Join(os.RemoveAll(fresh), p.tables.pin(fresh), p.saveSettings(fresh), os.RemoveAll(dir))
		if err != nil {
			return fmt.Errorf("pin: %w", err)
		}
		return os.Rename(fresh, dir)
	}
	return p.saveSettings(dir)
}

func (p *Path) saveSettings(dir string) error {
	data, err := json.Marshal(&saved{Program: objectDigest(), Generations: p.cfg.Generations, Hosts: p.tables.maxHosts,
		TailCalls: p.tables.tailCalls,
		Seed:      p.tables.seed, Settings: p.raw})
	if err != nil {
		return err
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: pinnedSettings, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(data)),
		MaxEntries: 1})
	if err != nil {
		return err
	}
	defer m.Close()
	if err := m.Put(uint32(0), data); err != nil {
		return err
	}
	fresh := filepath.Join(dir, pinnedSettings+"-new")
	_ = os.Remove(fresh)
	if err := m.Pin(fresh); err != nil {
		return err
	}
	return os.Rename(fresh, filepath.Join(dir, pinnedSettings))
}

// adopt continues with the pins of an earlier process.
func (p *Path) adopt() error {
	if err := hostkernel.CheckPin(p.cfg.Pin); err != nil {
		return err
	}
	m, err := ebpf.LoadPinnedMap(filepath.Join(p.cfg.Pin, pinnedMaps, pinnedSettings), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pin %s: %w", p.cfg.Pin, err)
	}
	defer m.Close()
	var data []byte
	if data, err = m.LookupBytes(uint32(0)); err != nil {
		return fmt.Errorf("pin %s: %w", p.cfg.Pin, err)
	}
	var s saved
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("pin %s: %w", p.cfg.Pin, err)
	}
	switch {
	case s.Program != objectDigest():
		p.cfg.Logger.Warn("the pinned programs are of another version; flows begin again with the next settings",
			"pin", p.cfg.Pin)
		return nil
	case s.Generations != p.cfg.Generations:
		p.cfg.Logger.Warn("the pinned maps have another count of generations; flows begin again with the next settings",
			"pin", p.cfg.Pin)
		return nil
	}
	return p.adoptTables(&s)
}

func (p *Path) adoptTables(s *saved) error {
	settings, err := wire.ParseSettings(s.Settings)
	if err != nil {
		return err
	}
	_, share, err := omnimon.Check(settings)
	if err != nil {
		return err
	}
	t, err := adopt(filepath.Join(p.cfg.Pin, pinnedMaps), s)
	if err != nil {
		p.cfg.Logger.Warn("the pinned maps are incomplete; flows begin again with the next settings", "error", err)
		return nil
	}
	if err := p.attach(t, settings); err != nil {
		t.close()
		return err
	}
	p.install(t, settings, s.Settings, share)
	// Apply opens no sockets for the same settings.
	if err := p.openSockets(settings.Hosts[settings.Host]); err != nil {
		p.cfg.Logger.Warn("no probes are sent, so packets have no header until the settings change", "error", err)
	}
	p.now = atomic.LoadUint64(&t.control.Epoch)
	if err := p.adoptQueries(settings); err != nil {
		return fmt.Errorf("pin %s: %w", p.cfg.Pin, err)
	}
	p.follow()
	oldest := t.control.Base
	if p.now >= t.generations {
		oldest = max(oldest, p.now-t.generations+1)
	}
	for e := oldest; e <= p.now; e++ {
		if t.control.Released[e%t.generations] != e+1 {
			p.open = append(p.open, e)
		}
	}
	if err := p.recover(); err != nil {
		return fmt.Errorf("pin %s: %w", p.cfg.Pin, err)
	}
	p.cfg.Logger.Info("adopted the data path in the kernel", "interface", p.cfg.Interface, "epoch", p.now,
		"epochs", len(p.open))
	return nil
}

// recover derives which flows, indexes and mappings are in use. Packets pass meanwhile.
func (p *Path) recover() error {
	t := p.tables
	indexes, err := drain(t.maps[omnimonMapFreeIndexes])
	if err != nil {
		return err
	}
	numbers, err := drain(t.maps[omnimonMapFreeMappings])
	if err != nil {
		return err
	}
	if err := t.wait(); err != nil { // waits until flows that have taken an index are in the table
		return err
	}
	fresh := t.fresh()
	freshNumber := min(uint64(atomic.LoadUint32(&t.control.FreshMapping)), uint64(len(t.mappings)))
	var flows, lost, back []uint32
	inStack := make([]bool, t.flows)
	for _, i := range indexes {
		inStack[i] = true
	}
	for i := range uint32(fresh) {
		switch state := atomic.LoadUint32(&t.entries[i].State); {
		case state == unused && !inStack[i]:
			lost = append(lost, i)
		case state != unused:
			flows = append(flows, i)
		}
	}
	slices.SortStableFunc(flows, func(a, b uint32) int {
		return cmp.Compare(t.entries[a].First, t.entries[b].First)
	})
	for _, i := range flows {
		e := &t.entries[i]
		p.assign(i, e.Mapping)
		switch atomic.LoadUint32(&e.State) {
		case returned:
			back = append(back, i)
			continue
		case ended, reopened:
			p.end(i)
		}
		if t.place(i) == nil {
			p.marks[i] |= leaving
			p.limbo = append(p.limbo, i)
		}
	}
	free := make([]bool, len(t.mappings))
	for _, n := range numbers {
		free[n] = true
	}
	for n := range uint32(freshNumber) {
		if !free[n] && !p.pool.InUse(n) {
			numbers = append(numbers, n)
		}
	}
	for _, n := range numbers {
		if err := t.maps[omnimonMapFreeMappings].Put(nil, n); err != nil {
			return err
		}
	}
	indexes = append(indexes, lost...)
	for _, i := range slices.Backward(indexes) {
		if err := t.maps[omnimonMapFreeIndexes].Put(nil, i); err != nil {
			return err
		}
	}
	for _, i := range back {
		if err := p.free(i); err != nil {
			return err
		}
	}
	p.cycle()
	return nil
}

// drain empties a queue or stack of numbers.
func drain(m *ebpf.Map) (all []uint32, err error) {
	for {
		var n uint32
		err := m.LookupAndDelete(nil, &n)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
}

// Close implements agent.DataPath. Pinned programs go on.
func (p *Path) Close() error {
	close(p.done)
	p.idle.Wait()
	err := p.attachment.Close()    // without p.mu, because changed takes it
	defer p.leasing.readers.Wait() // waits for the reader that ends with the tables
	p.closeSockets()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeTables()
	return err
}

// closeTables ends the use of the maps.
func (p *Path) closeTables() {
	p.shared.Lock()
	defer p.shared.Unlock()
	if p.tables != nil {
		p.epoch = atomic.LoadUint64(&p.tables.control.Epoch)
		p.tables.close()
		p.tables = nil
		closeQueries(p.queries)
		p.queries = nil
	}
}

// remove ends the measurement: no packet gets a header any more, and arriving packets are stripped
// until the leases of other hosts have ended. Then it removes the programs and the pins.
func (p *Path) remove() error {
	common := p.cfg.frame()
	common.Keep(nil)
	err := p.attachment.Leave()
	p.closeTables()
	p.settings, p.raw = nil, nil
	p.waiting, p.sealed, p.open = nil, nil, nil
	return err
}
