// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

// BuildPlugins copies plugins into a plugin directory: built-in ones, and hello, an example with
// its own module. It takes binaries from NETSKETCH_BIN, which make sets, or builds them in the
// repository's .cache, so that the test binaries of a run link each plugin once.
func BuildPlugins(directory string, names ...string) error {
	root, err := Root()
	if err != nil {
		return fmt.Errorf("building plugins: %w", err)
	}
	bin := os.Getenv("NETSKETCH_BIN")
	var errs []error
	for _, name := range names {
		from, file := filepath.Join(bin, "plugins"), "netsketch-plugin-"+name
		if bin == "" || name == "hello" {
			from = filepath.Join(root, ".cache", "test-plugins")
			if err := buildPlugin(root, from, name, file); err != nil {
				errs = append(errs, fmt.Errorf("building plugin %s: %w", name, err))
				continue
			}
		}
		errs = append(errs, copyFile(filepath.Join(directory, file), filepath.Join(from, file)))
	}
	return errors.Join(errs...)
}

func buildPlugin(root, into, name, file string) error {
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(into, file))
	if build.Dir = filepath.Join(root, "plugins", name); name == "hello" {
		build.Dir = filepath.Join(root, "examples", "plugin-hello")
	}
	// In the same file system, go renames the linked file, so other tests never see a partial file.
	build.Env = append(os.Environ(), "GOTMPDIR="+into)
	out, err := build.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// InstallSelf copies this test binary to a path, for a TestMain that acts as a plugin if the
// file's name says so.
func InstallSelf(path string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return copyFile(path, self)
}

// copyFile copies a file: as a hard link if possible, which writes no data. Tests may replace such
// a file, but must not write to it.
func copyFile(to, from string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

// MainWithPlugins is the TestMain of a package whose tests start plugins. It builds the plugins
// into a directory, which it stores in *directory, and fails if a goroutine remains. Unless GOGC
// is set, the heap may grow more than by Go's default, which saves a tenth of the processor time.
func MainWithPlugins(m *testing.M, directory *string, names ...string) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	var err error
	if *directory, err = os.MkdirTemp("", "netsketch-plugins-"); err == nil {
		err = BuildPlugins(*directory, names...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// ygot logs through glog, which starts a goroutine when it is loaded.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"),
		goleak.Cleanup(func(code int) {
			os.RemoveAll(*directory)
			os.Exit(code)
		}))
}
