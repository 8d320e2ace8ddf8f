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

// BuildPlugins builds built-in plugins into a plugin directory.
func BuildPlugins(directory string, names ...string) error {
	var errs []error
	for _, name := range names {
		out, err := exec.Command("go", "build", "-buildvcs=false", "-o",
			filepath.Join(directory, "netsketch-plugin-"+name),
			"github.com/netsketch/netsketch/plugins/"+name).CombinedOutput()
		if err != nil {
			errs = append(errs, fmt.Errorf("building plugin %s: %w\n%s", name, err, out))
		}
	}
	return errors.Join(errs...)
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
