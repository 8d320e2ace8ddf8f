// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/internal/test/testkit"
)

// The collector's state lists the certificates of a device's sessions for as long as the device is
// configured.
func TestCertificatesInTheState(t *testing.T) {
	dir := t.TempDir()
	ca := testkit.NewAuthority(t, "switches").Write(t, dir, "ca.pem")
	cert, _ := testkit.NewAuthority(t, "collectors").Issue(t, dir, "collector", time.Now().Add(5*24*time.Hour+time.Hour))
	plain := devicesYAML(2)
	secured := strings.Replace(plain, "tls: {plaintext: true}",
		"tls: {ca-file: "+ca+", cert-file: "+cert+", key-file: "+filepath.Join(dir, "collector.key")+"}", 1)
	r := newRig(t, secured, nil)
	if s1, s2 := r.devices["s1"].cfg.Session.TLS, r.devices["s2"].cfg.Session.TLS; s1 == nil || s2 != nil {
		t.Errorf("TLS of s1 %v and of s2 %v", s1, s2)
	}
	states := func() []string {
		r.step()
		return r.rows("netsketch", "/collector/certificates/certificate", "state/use", "state/subject", "state/days-left",
			"state/status", "state/last-error")
	}
	want := []string{
		"[file=" + ca + "] use=P4Runtime client of device s1 subject=CN=switches days-left=364 status=VALID last-error=",
		"[file=" + cert + "] use=P4Runtime client of device s1 subject=CN=collector days-left=5 status=EXPIRING last-error=",
	}
	if diff := cmp.Diff(want, states()); diff != "" {
		t.Error(diff)
	}
	if n := strings.Count(r.log.String(), "certificate expires soon"); n != 1 {
		t.Errorf("the warning is logged %d times:\n%s", n, r.log)
	}
	if _, err := r.c.Reload(context.Background(), parseConfig(t, plain)); err != nil {
		t.Fatal(err)
	}
	if got := states(); len(got) != 0 {
		t.Errorf("certificates without a use: %q", got)
	}
}
