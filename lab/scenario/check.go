// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/collector"
	"github.com/netsketch/netsketch/collector/device"
	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/collector/schema"
	"github.com/netsketch/netsketch/hostagent/role/remote"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/suggest"
	"github.com/netsketch/netsketch/lab"
	"github.com/netsketch/netsketch/lab/scenario/groundtruth"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/softswitch/trial"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// Check reports what Load cannot find: programs that cannot be loaded, agents that cannot be run,
// plugins that do not start or refuse their configuration, and scoring of what a plugin does not
// publish. The directory has the plugins that are named without a path. It also returns what
// plugins need and the network lacks: the plugins run without it, but may have no results.
func (s *Scenario) Check(ctx context.Context, directory string) (missing []string, _ error) {
	var errs []error
	add := func(key string, err error) {
		if err != nil {
			errs = append(errs, s.section.Problem(key, err.Error()))
		}
	}
	programs := map[string]string{"program": s.Program}
	for name, program := range s.Programs {
		programs["programs."+name] = program
	}
	for _, key := range slices.Sorted(maps.Keys(programs)) {
		add(key, checkProgram(programs[key]))
	}
	for i, name := range s.Agents {
		if isAgentFile(name) {
			add(fmt.Sprintf("agents[%d]", i), runnable(s.at(name)))
		}
	}
	host, err := pluginhost.New(pluginhost.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	defer func() { _ = host.Close(context.WithoutCancel(ctx)) }()
	var names []string
	for i, a := range s.Algorithms {
		instance, err := instanceOf(a)
		if err != nil {
			return nil, err
		}
		names = append(names, config.Plugin{Plugin: instance.Plugin}.Binary())
		path := filepath.Join(directory, pluginhost.FilePrefix+instance.Plugin)
		if strings.ContainsRune(instance.Plugin, '/') {
			path = s.at(instance.Plugin)
		}
		p, err := host.Start(ctx, pluginhost.Spec{Path: path, Config: instance.Config, EpochLength: s.Epoch})
		if err != nil {
			add(fmt.Sprintf("algorithms[%d]", i), err)
			continue
		}
		d := p.Describe()
		p.Stop(context.WithoutCancel(ctx))
		registry, err := schema.New(slices.Concat(yang.CollectorModules(), yang.SwitchModules()))
		if err == nil {
			err = registry.Adopt(d)
		}
		if err != nil {
			add(fmt.Sprintf("algorithms[%d]", i), err)
			continue
		}
		errs = append(errs, s.checkPublished(registry.Current(), d.Name))
	}
	if errors.Join(errs...) == nil {
		missing, err = s.checkNetwork(ctx, directory)
		errs = append(errs, err)
	}
	for i, c := range s.Scoring {
		if !slices.Contains(names, c.Plugin) {
			add(fmt.Sprintf("scoring[%d].plugin", i), fmt.Errorf("%q is not among the algorithms, which are %s", c.Plugin,
				strings.Join(names, ", ")))
		}
	}
	return missing, errors.Join(errs...)
}

// checkProgram returns why a program cannot be loaded or measured.
func checkProgram(name string) error {
	p, err := loadProgram(name)
	if err != nil {
		return err
	}
	program := &p4rt.Program{Name: name, P4Info: p.P4Info, DeviceConfig: p.JSON}
	if err := device.CheckProgram(program); err != nil || !isFile(name) {
		return err
	}
	return trial.Check(program)
}

// checkNetwork reports what a collector would refuse in the scenario's network, and agents without
// settings. It also returns what plugins need and the network lacks.
func (s *Scenario) checkNetwork(ctx context.Context, directory string) (missing []string, _ error) {
	f, err := s.fabric()
	if err != nil {
		return nil, s.section.Problem("topology", err.Error())
	}
	var switches []lab.Device
	for i, sw := range f.Switches {
		switches = append(switches, lab.Device{Name: sw.Name, Role: sw.Role, DeviceID: uint64(i + 1),
			Address: fmt.Sprintf("127.0.0.1:%d", i+1)})
	}
	cfg, err := s.collectorConfig(f, switches, Options{PluginDir: directory, Listen: "127.0.0.1:0"}, "")
	if err != nil {
		return nil, err
	}
	checked, err := collector.Check(ctx, cfg, collector.Dependencies{Programs: Programs})
	if err != nil {
		return nil, s.section.Problem("", "the collector of this network refuses: "+err.Error())
	}
	var names []string
	for i, name := range s.Agents {
		if isAgentFile(name) {
			if name, err = remote.Name(ctx, s.at(name)); err != nil {
				return nil, s.section.Problem(fmt.Sprintf("agents[%d]", i), err.Error())
			}
		}
		names = append(names, name)
	}
	return checked.Warnings, s.checkRoles(names, checked.HostRoles)
}

// runnable returns why an agent's program cannot be run.
func runnable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not a program (mode %v): name the file that go build writes", path, info.Mode())
	}
	return nil
}

// checkPublished returns lists and leaves in the scoring of some plugins that these do not publish.
func (s *Scenario) checkPublished(published *yang.Schema, plugins ...string) error {
	var errs []error
	for i, c := range s.Scoring {
		if !slices.Contains(plugins, c.Plugin) {
			continue
		}
		fail := func(key, format string, args ...any) {
			errs = append(errs, s.section.Problem(fmt.Sprintf("scoring[%d]%s", i, key), fmt.Sprintf(format, args...)))
		}
		below := map[string]*yang.List{} // lists by their paths below root
		var paths, names, roots []string
		for _, list := range published.Lists() {
			_, path, _ := strings.Cut(list.Path, ":")
			root, path, _ := strings.Cut(path, "/")
			roots = append(roots, root)
			if root == c.Root {
				below[path] = list
				paths, names = append(paths, path), append(names, path[strings.LastIndexByte(path, '/')+1:])
			}
		}
		if len(below) == 0 {
			fail(".root", "%s publishes nothing below %q%s", c.Plugin, c.Root, otherwise(c.Root, slices.Compact(roots)))
			continue
		}
		if below[c.Summary] == nil {
			fail(".summary", "%s has no list %q%s", c.Plugin, c.Summary, otherwise(c.Summary, paths))
		}
		for j, m := range c.Measures {
			key := fmt.Sprintf(".measures[%d]", j)
			at := slices.Index(names, m.List)
			if at < 0 {
				fail(key+".list", "%s has no list %q%s", c.Plugin, m.List, otherwise(m.List, names))
				continue
			}
			list := below[paths[at]]
			for _, want := range []string{"node", "flow", "dimension"} {
				if !slices.ContainsFunc(list.Keys, func(k *yang.Leaf) bool { return k.Name == want }) &&
					(want != "dimension" || len(m.Dimensions) > 0) {
					fail(key+".list", "the list %s has no key %q, by which its rows are compared", m.List, want)
				}
			}
			var leaves []string
			for _, leaf := range list.Leaves {
				leaves = append(leaves, strings.TrimPrefix(leaf.Name, "state/"))
			}
			if m.Leaf != "" && !slices.Contains(leaves, m.Leaf) {
				fail(key+".leaf", "the list %s has no leaf %q%s", m.List, m.Leaf, otherwise(m.Leaf, leaves))
			}
			for _, leaf := range list.Leaves {
				number := slices.Contains([]table.Kind{table.Uint64, table.Int64, table.Float64}, leaf.Kind())
				if strings.TrimPrefix(leaf.Name, "state/") == m.Leaf && number == (m.Truth == groundtruth.Paths) {
					fail(key+".leaf", "%s has the type %s, which is not compared with %s", m.Leaf, leaf.Type.Name, m.Truth)
				}
			}
		}
	}
	return errors.Join(errs...)
}

// otherwise returns the end of a message about a name that does not exist: the most similar name
// that exists, or all that exist.
func otherwise(name string, all []string) string {
	if near := suggest.Nearest(name, all); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return "; there are " + strings.Join(all, ", ")
}
