// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/hostagent/kernel"
)

// endTimeout bounds the wait for a running agent to end.
const endTimeout = 20 * time.Second

// dropPins makes the agent run without pins if there is no BPF file system at the default place. It
// returns a warning then.
func (c *Config) dropPins() (warning string) {
	p := &c.Packets
	if p.Source != SourceKernel || p.Pin != defaultPin {
		return ""
	}
	err := kernel.CheckPin(p.Pin)
	if err == nil {
		return ""
	}
	p.Pin = ""
	return fmt.Sprintf("programs in the kernel end with this agent, and packets with a header that arrive later are "+
		"lost: %v; or state with packets.pin: \"\" that this is intended", err)
}

// lock claims the pins for this process.
func (c *Config) lock() (release func(), err error) {
	if c.Packets.Source != SourceKernel || c.Packets.Pin == "" {
		return func() {}, nil
	}
	return kernel.Lock(c.Packets.Pin)
}

// strip attaches programs that strip arriving packets.
func strip(ctx context.Context, c *Config, roles []Role, wait time.Duration, log *slog.Logger) error {
	if c.Packets.Source != SourceKernel {
		log.Info("nothing is attached: packets come from another source than the kernel", "source", c.Packets.Source)
		return nil
	}
	release, err := c.lock()
	if held, ok := errors.AsType[*kernel.HeldError](err); ok {
		log.Info("an agent runs, and strips what arrives", "process", held.PID)
		return nil
	}
	if err != nil {
		return err
	}
	defer release()
	if err := waitFor(ctx, c.Packets.Interface, wait); err != nil {
		return err
	}
	var errs []error
	for _, r := range c.configured(roles) {
		if r.Kernel == nil || r.Kernel.Strip == nil {
			continue
		}
		k := c.kernel(r.Name, log)
		settings, err := os.ReadFile(k.State)
		if err != nil {
			settings = nil // the host had no settings
		}
		if err := r.Kernel.Strip(k, settings); err != nil {
			errs = append(errs, fmt.Errorf("role %s: %w", r.Name, err))
		}
	}
	return errors.Join(errs...)
}

// waitFor returns when there is an interface with a name.
func waitFor(ctx context.Context, name string, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		_, err := net.InterfaceByName(name)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("interface %s: %w", name, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// remove ends the agent, and removes its programs from the kernel: at its interface and in its
// directory of pins, or at all interfaces and in all directories if the file does not name them.
func remove(ctx context.Context, c *Config, roles []Role, w io.Writer) error {
	p := c.Packets
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = r.Name
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return err
	}
	if p.Interface != "" {
		interfaces = slices.DeleteFunc(interfaces, func(i net.Interface) bool { return i.Name != p.Interface })
	}
	dirs := kernel.PinDirs(kernel.Programs(interfaces), names)
	if p.Pin != "" && !slices.Contains(dirs, p.Pin) && kernel.CheckPin(p.Pin) == nil {
		dirs = append(dirs, p.Pin)
	}
	release, err := endAgents(ctx, dirs, interfaces, w)
	if err != nil {
		return err
	}
	defer release()
	removed, err := kernel.Remove(ctx, dirs, interfaces, names)
	for _, r := range roles {
		k := c.kernel(r.Name, nil)
		k.Keep(nil)
	}
	switch {
	case len(removed) > 0:
		fmt.Fprintf(w, "removed: %s\n", strings.Join(removed, ", "))
	case err == nil && os.Geteuid() > 0:
		return errors.New("remove needs root, to find what agents have left in the kernel")
	case err == nil:
		fmt.Fprintln(w, "nothing to remove")
	}
	return err
}

// endAgents ends the agents that use directories of pins or have programs at interfaces, and claims
// the directories for this process.
func endAgents(ctx context.Context, dirs []string, interfaces []net.Interface, w io.Writer) (release func(),
	err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, endTimeout, errors.New("it has not ended in time"))
	defer cancel()
	signaled := map[int]bool{}
	for {
		release, running, err := lockAll(dirs)
		if err != nil {
			return nil, err
		}
		running = append(running, kernel.Holders(kernel.Programs(interfaces))...)
		if len(running) == 0 {
			return release, nil
		}
		release()
		for _, pid := range running {
			if signaled[pid] {
				continue
			}
			signaled[pid] = true
			fmt.Fprintf(w, "ending the agent, process %d\n", pid)
			if err := endProcess(pid); err != nil {
				return nil, fmt.Errorf("process %d: %w", pid, err)
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("process %d: %w", running[0], context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// lockAll claims directories of pins for this process, and returns the processes that have them.
func lockAll(dirs []string) (release func(), held []int, err error) {
	var all []func()
	release = func() {
		for _, f := range all {
			f()
		}
	}
	for _, dir := range dirs {
		f, err := kernel.Lock(dir)
		by, ok := errors.AsType[*kernel.HeldError](err)
		switch {
		case ok && by.PID > 0:
			held = append(held, by.PID)
		case err != nil:
			release()
			return nil, nil, err
		default:
			all = append(all, f)
		}
	}
	return release, held, nil
}
