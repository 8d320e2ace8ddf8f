// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/internal/rawlink"
)

// Hook is a program and where an interface runs it.
type Hook struct {
	// Name names the program in logs, and the pin of its link.
	Name    string
	Program *ebpf.Program
	// At is ebpf.AttachXDP, ebpf.AttachTCXIngress or ebpf.AttachTCXEgress. A kernel without TCX,
	// before Linux 6.6, runs the program at clsact instead.
	At ebpf.AttachType
	// First runs the program before other programs at the same place. Programs of several roles with
	// First run in the order of front.
	First bool
}

// Attachment keeps programs attached to the interface with a name. When the interface was deleted
// and created again, it attaches the programs to the new one. It is safe for concurrent use.
type Attachment struct {
	cfg     Config
	log     *slog.Logger
	changed func(attached bool)

	mu      sync.Mutex
	prepare func() error // makes a new interface fit for the programs
	hooks   []*attached  // hooks in the order of Set; empty: no program
	index   int          // index of the interface
	lost    time.Time    // when the programs were found to be detached; zero while they are attached
	problem string       // reason for which programs could not be attached again, logged once
	leaving *time.Timer  // timer that detaches the programs that strip arriving packets
	watch   *watch       // nil before programs are attached
}

// attached is a hook and the attachment of its program.
type attached struct {
	Hook             // has a copy of the program that closes with the attachment
	link   link.Link // the TCX or XDP link; nil for a filter at clsact
	filter *filter   // clsact
}

// NewAttachment returns an attachment without programs. changed, which may be nil, is called from a
// goroutine of the attachment when the interface has gone with the programs, and when they are
// attached again.
func NewAttachment(cfg Config, changed func(attached bool)) *Attachment {
	return &Attachment{cfg: cfg, log: cfg.log(), changed: changed}
}

// Set makes the interface run the programs of hooks, and no others of this attachment. A program at
// the same place is replaced without a gap, also one that an earlier process pinned. Hooks are
// attached in their order; after an error the previous programs run. prepare, which may be nil, is
// called before programs are attached to another interface with the same name.
func (a *Attachment) Set(prepare func() error, hooks ...Hook) error {
	if a.cfg.Interface == "" {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leaving != nil {
		a.leaving.Stop()
		a.leaving = nil
	}
	var err error
	if a.watch == nil {
		if a.watch, err = newWatch(a.verify); err != nil {
			return err
		}
	}
	index, err := a.watch.index(a.cfg.Interface)
	if err == nil {
		if err = rawlink.CheckEthernet(a.cfg.Interface); err != nil {
			err = fmt.Errorf("interface %s: %w", a.cfg.Interface, err)
		}
	}
	if err != nil && len(a.hooks) == 0 {
		return err
	}
	before := a.hooks
	var now []*attached
	for _, h := range hooks {
		if h.Program, err = h.Program.Clone(); err != nil {
			break
		}
		next := &attached{Hook: h}
		now = append(now, next)
		if i := slices.IndexFunc(before, func(b *attached) bool { return b.Name == h.Name && b.At == h.At }); i >= 0 {
			next.link, next.filter = before[i].link, before[i].filter
		}
		if !a.lost.IsZero() {
			continue // the program is attached when the interface exists again
		}
		if err = a.run(next, index); err != nil {
			err = fmt.Errorf("program %s on %s: %w", h.Name, a.cfg.Interface, err)
			break
		}
	}
	if err != nil {
		return errors.Join(err, a.restore(before, now))
	}
	for _, b := range before {
		if !slices.ContainsFunc(now, func(n *attached) bool { return n.Name == b.Name && n.At == b.At }) {
			err = errors.Join(err, b.detach(a.cfg.Pin))
		}
		_ = b.Program.Close()
	}
	a.prepare, a.hooks = prepare, now
	if a.lost.IsZero() {
		a.index = index
	}
	return errors.Join(err, a.removeStale())
}

// restore makes the interface run the previous programs after some were replaced. The error names
// programs that stay replaced. a.mu is held.
func (a *Attachment) restore(before, now []*attached) (all error) {
	for _, n := range now {
		var err error
		i := slices.IndexFunc(before, func(b *attached) bool { return b.Name == n.Name && b.At == n.At })
		if i < 0 {
			err = n.detach(a.cfg.Pin)
		} else if a.lost.IsZero() {
			err = a.run(before[i], a.index)
		}
		if err != nil {
			all = errors.Join(all, fmt.Errorf("program %s on %s is not undone: %w", n.Name, a.cfg.Interface, err))
		}
		_ = n.Program.Close()
	}
	return all
}

// run makes an interface run the program of a hook. a.mu is held.
func (a *Attachment) run(h *attached, index int) error {
	switch {
	case h.link != nil:
		return h.link.Update(h.Program)
	case h.filter != nil:
		return h.filter.replace(h.Program)
	}
	if l := a.adopt(h, index); l != nil {
		h.link = l
		return nil
	}
	var err error
	if h.At == ebpf.AttachXDP {
		h.link, err = a.attachXDP(h.Program, index)
	} else {
		err = a.attachTC(h, index)
	}
	if err != nil || a.cfg.Pin == "" || h.link == nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(a.cfg.Pin, 0o700), h.link.Pin(filepath.Join(a.cfg.Pin, h.Name))); err != nil {
		err = errors.Join(fmt.Errorf("pin %s: %w", a.cfg.Pin, err), h.link.Close())
		h.link = nil
		return err
	}
	return nil
}

// adopt returns the link that an earlier process pinned, after it has replaced the program; nil
// without one. A link to another interface is removed.
func (a *Attachment) adopt(h *attached, index int) link.Link {
	if a.cfg.Pin == "" {
		return nil
	}
	file := filepath.Join(a.cfg.Pin, h.Name)
	l, err := link.LoadPinnedLink(file, nil)
	if err != nil {
		return nil
	}
	at, kind := placeOf(l)
	if at == index && kind == h.At && l.Update(h.Program) == nil {
		return l
	}
	if at != index {
		a.log.Warn("the interface of a pinned program is gone; it is attached again", "interface", a.cfg.Interface,
			"program", h.Name)
	}
	_ = errors.Join(os.Remove(file), l.Close())
	return nil
}

// hasPins reports whether an earlier process pinned programs in a directory.
func hasPins(dir string) bool {
	files, _ := os.ReadDir(dir) // no entries if the directory does not exist
	return slices.ContainsFunc(files, func(f os.DirEntry) bool { return !f.IsDir() })
}

// placeOf returns the index of the interface of a link, 0 if the interface is gone, and its type.
func placeOf(l link.Link) (index int, at ebpf.AttachType) {
	info, err := l.Info()
	if err != nil {
		return 0, 0
	}
	if x := info.XDP(); x != nil {
		return int(x.Ifindex), ebpf.AttachXDP
	}
	if x := info.TCX(); x != nil {
		return int(x.Ifindex), ebpf.AttachType(x.AttachType)
	}
	return 0, 0
}

// attachXDP attaches a program to the driver of an interface, or else to the network stack, which
// runs it on every interface with Ethernet headers.
func (a *Attachment) attachXDP(prog *ebpf.Program, index int) (link.Link, error) {
	attach := func(mode link.XDPAttachFlags) (link.Link, error) {
		l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: index, Flags: mode})
		if errors.Is(err, unix.EBUSY) {
			err = fmt.Errorf("%w: another XDP program is attached; remove it: ip link set dev %s xdp off", err,
				a.cfg.Interface)
		}
		return l, err
	}
	if a.cfg.Generic {
		return attach(link.XDPGenericMode)
	}
	l, refused := attach(link.XDPDriverMode)
	if refused == nil || errors.Is(refused, unix.EBUSY) {
		return l, refused
	}
	l, err := attach(link.XDPGenericMode)
	if err != nil {
		return nil, fmt.Errorf("the driver refuses XDP: %w; the network stack refuses it: %w; packets.source: bridge "+
			"needs no XDP", refused, err)
	}
	a.log.Warn("XDP runs in the network stack, which takes more time: the driver refuses it", "interface", a.cfg.Interface,
		"error", refused)
	return l, nil
}

// attachTC attaches the program of a hook to TCX, or to clsact if the kernel has no TCX.
func (a *Attachment) attachTC(h *attached, index int) error {
	if !a.cfg.Clsact {
		l, err := link.AttachTCX(link.TCXOptions{Program: h.Program, Interface: index, Attach: h.At,
			Anchor: h.anchor(a.cfg.Role, index)})
		if !errors.Is(err, ebpf.ErrNotSupported) {
			h.link = l
			return err
		}
		a.log.Info("the kernel has no TCX; using clsact", "interface", a.cfg.Interface, "program", h.Name)
	}
	f, err := newFilter(index, a.cfg.Role, h.Hook)
	if err != nil {
		return err
	}
	if err := f.replace(h.Program); err != nil {
		return errors.Join(err, f.close())
	}
	h.filter = f
	return nil
}

// detach ends the program of a hook at its interface.
func (h *attached) detach(pin string) error {
	var err error
	if h.link != nil {
		if pin != "" {
			err = os.Remove(filepath.Join(pin, h.Name))
		}
		err = errors.Join(ignoreNotExist(err), h.link.Close())
	}
	if h.filter != nil {
		err = errors.Join(h.filter.remove(), h.filter.close())
	}
	h.link, h.filter = nil, nil
	return err
}

func ignoreNotExist(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// removeStale removes pinned links of programs that the attachment does not have, which an earlier
// version left. a.mu is held.
func (a *Attachment) removeStale() error {
	if a.cfg.Pin == "" {
		return nil
	}
	files, err := os.ReadDir(a.cfg.Pin)
	err = ignoreNotExist(err)
	for _, f := range files {
		if !f.IsDir() && !slices.ContainsFunc(a.hooks, func(h *attached) bool { return h.Name == f.Name() }) {
			err = errors.Join(err, ignoreNotExist(os.Remove(filepath.Join(a.cfg.Pin, f.Name()))))
		}
	}
	return err
}

// verify attaches the programs again if the interface was replaced, or if the programs were
// detached. It is called after every change of an interface, and once a second.
func (a *Attachment) verify() {
	a.mu.Lock()
	was, detached := a.lost.IsZero(), false
	if len(a.hooks) > 0 && a.watch != nil {
		detached = a.follow()
	}
	now := a.lost.IsZero()
	a.mu.Unlock()
	if a.changed == nil {
		return
	}
	if was && detached {
		a.changed(false)
	}
	if now && (detached || !was) {
		a.changed(true)
	}
}

// follow compares the interface with the interface that runs the programs, and reports whether the
// programs were detached. The caller holds a.mu.
func (a *Attachment) follow() (detached bool) {
	index, err := a.watch.index(a.cfg.Interface)
	if a.lost.IsZero() {
		if err == nil && index == a.index && a.whole() {
			return false
		}
		a.lost = time.Now()
		a.log.Warn("the interface is gone, and the programs with it: they are attached when it is there again",
			"interface", a.cfg.Interface)
	}
	if err != nil {
		return true
	}
	if a.prepare != nil {
		err = a.prepare()
	}
	for _, h := range a.hooks {
		if err == nil && !h.attachedTo(index) {
			_ = h.detach(a.cfg.Pin)
			err = a.run(h, index)
		}
	}
	if err != nil {
		if text := err.Error(); text != a.problem {
			a.problem = text
			a.log.Error("the programs cannot be attached again; this is tried every second", "interface", a.cfg.Interface,
				"error", err)
		}
		return true
	}
	a.log.Warn("the interface is there again: the programs are attached", "interface", a.cfg.Interface, "gap",
		time.Since(a.lost).Round(time.Millisecond))
	a.index, a.lost, a.problem = index, time.Time{}, ""
	return true
}

// whole reports whether the interface runs all programs. a.mu is held.
func (a *Attachment) whole() bool {
	return !slices.ContainsFunc(a.hooks, func(h *attached) bool { return !h.attachedTo(a.index) })
}

func (h *attached) attachedTo(index int) bool {
	switch {
	case h.link != nil:
		at, _ := placeOf(h.link)
		return at == index
	case h.filter != nil:
		return h.filter.index == index && h.filter.exists()
	}
	return false
}

// Interrupted returns since when the programs are detached; ok is false while they are attached.
func (a *Attachment) Interrupted() (since time.Time, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lost, !a.lost.IsZero()
}

// Leave ends the programs without harm to packets: it detaches the programs that insert headers
// into outgoing packets at once, and the programs that strip arriving packets after LeaseTime,
// unless Set is called before. Then it removes the pins.
func (a *Attachment) Leave() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.hooks) == 0 {
		return a.end()
	}
	var err error
	rest := a.hooks[:0]
	for _, h := range a.hooks {
		if h.At == ebpf.AttachTCXEgress {
			err = errors.Join(err, h.detach(a.cfg.Pin), h.Program.Close())
		} else {
			rest = append(rest, h)
		}
	}
	if a.hooks = rest; len(rest) == 0 {
		return errors.Join(err, a.end())
	}
	var timer *time.Timer
	timer = time.AfterFunc(LeaseTime, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.leaving != timer {
			return // Set was called
		}
		a.leaving = nil
		if err := a.end(); err != nil {
			a.log.Error("the programs cannot be detached", "interface", a.cfg.Interface, "error", err)
		}
	})
	a.leaving = timer
	return err
}

// end detaches all programs and removes the pins. a.mu is held.
func (a *Attachment) end() error {
	var err error
	for _, h := range a.hooks {
		err = errors.Join(err, h.detach(a.cfg.Pin), h.Program.Close())
	}
	a.hooks, a.lost = nil, time.Time{}
	if a.cfg.Pin != "" {
		err = errors.Join(err, os.RemoveAll(a.cfg.Pin))
	}
	return err
}

// Close ends the use of the attachment. Pinned programs go on; others end.
func (a *Attachment) Close() error {
	a.mu.Lock()
	w := a.watch
	a.watch = nil
	a.mu.Unlock()
	if w != nil {
		w.close() // without a.mu, because verify takes it
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leaving != nil {
		a.leaving.Stop()
		a.leaving = nil
	}
	if a.cfg.Pin == "" {
		return a.end()
	}
	var err error
	for _, h := range a.hooks {
		if h.link != nil {
			err = errors.Join(err, h.link.Close())
		} else if h.filter != nil {
			err = errors.Join(err, h.filter.close())
		}
		err = errors.Join(err, h.Program.Close())
	}
	a.hooks = nil
	return err
}
