// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// BuildPlugins copies built-in plugins into a plugin directory. They are built in .cache of the
// repository, so that the test binaries of a run link each plugin once.
func BuildPlugins(directory string, names ...string) error {
	root, err := Root()
	if err != nil {
		return fmt.Errorf("building plugins: %w", err)
	}
	built := filepath.Join(root, ".cache", "test-plugins")
	if err := os.MkdirAll(built, 0o755); err != nil {
		return fmt.Errorf("building plugins: %w", err)
	}
	var errs []error
	for _, name := range names {
		binary := filepath.Join(built, "netsketch-plugin-"+name)
		build := exec.Command("go", "build", "-buildvcs=false", "-o", binary,
			"github.com/netsketch/netsketch/plugins/"+name)
		// In the same file system go renames what it linked: other tests never see half a file.
		build.Env = append(os.Environ(), "GOTMPDIR="+built)
		if out, err := build.CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("building plugin %s: %w\n%s", name, err, out))
			continue
		}
		errs = append(errs, copyFile(filepath.Join(directory, filepath.Base(binary)), binary))
	}
	return errors.Join(errs...)
}

func copyFile(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

// MainWithPlugins is the TestMain of a package whose tests start plugins. It builds the plugins
// into a directory, which it stores in *directory, and fails if a goroutine remains.
func MainWithPlugins(m *testing.M, directory *string, names ...string) {
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
