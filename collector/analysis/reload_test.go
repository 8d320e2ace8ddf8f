// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/internal/config"
)

// A plugin that refuses a configuration keeps its earlier one. A plugin that is down takes the new
// one, so that a fix for a crash takes effect.
func TestReloadOfAPluginThatIsDown(t *testing.T) {
	r := newRig(t, nil, "fake")
	changed := func(deadline time.Duration) error {
		cfg := r.c.config()
		p := cfg.Plugins.Instances[0]
		p.Deadline = deadline
		cfg.Plugins.Instances = []config.Plugin{p}
		return r.c.Reload(t.Context(), cfg, config.Changes{PluginsReconfigured: []config.Plugin{p}})
	}
	r.plugins["fake"].do(func(p *fakePlugin) {
		p.refuse = fmt.Errorf("%w: threshold: is negative",
			pluginhost.ErrConfig)
	})
	err := changed(2 * time.Second)
	if err == nil || !strings.Contains(err.Error(), "plugin fake keeps its configuration") ||
		r.c.plugin("fake").config().Deadline != 0 {
		t.Errorf("refused: error %v, deadline %v", err, r.c.plugin("fake").config().Deadline)
	}
	if s := r.c.Status()[0]; !strings.Contains(s.LastError, "keeps its configuration") {
		t.Errorf("status %+v", s)
	}
	for number, down := range []error{
		fmt.Errorf("%w: exited with status 1", pluginhost.ErrNotRunning),
		fmt.Errorf("%w: %w: threshold: is negative", pluginhost.ErrNotRunning, pluginhost.ErrConfig),
		fmt.Errorf("%w: stream ended", pluginhost.ErrProtocol),
	} {
		deadline := time.Duration(number+3) * time.Second
		r.plugins["fake"].do(func(p *fakePlugin) { p.refuse = down })
		if err := changed(deadline); !errors.Is(err, down) || strings.Contains(err.Error(), "keeps its configuration") {
			t.Errorf("down: error %v", err)
		}
		if got := r.c.plugin("fake").config().Deadline; got != deadline {
			t.Errorf("%v: the configuration is lost: deadline %v, want %v", down, got, deadline)
		}
		if s := r.c.Status()[0]; strings.Contains(s.LastError, "keeps its configuration") {
			t.Errorf("status %+v", s)
		}
	}
}

// A plugin that did not start counts as replaced when its file has changed, so that a reload starts
// it again.
func TestReplacedPluginThatDidNotStart(t *testing.T) {
	r := newRigWith(t, nil, func(d *Dependencies) {
		d.Launch = func(context.Context, pluginhost.Spec) (Instance, error) {
			return nil, fmt.Errorf("%w: threshold: is negative", pluginhost.ErrConfig)
		}
	}, "fake")
	if names := r.c.Replaced(0); len(names) > 0 {
		t.Errorf("%v are taken for replaced", names)
	}
	cfg := r.c.config()
	path := filepath.Join(cfg.Plugins.Directory, pluginhost.FilePrefix+"fake")
	if err := os.WriteFile(path, []byte("fixed"), 0o700); err != nil {
		t.Fatal(err)
	}
	if names := r.c.Replaced(0); !slices.Equal(names, []string{"fake"}) {
		t.Errorf("replaced: %v", names)
	}
	if names := r.c.Replaced(time.Hour); len(names) > 0 {
		t.Errorf("%v are taken for settled", names)
	}
}
