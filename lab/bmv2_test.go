// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"errors"
	"testing"

	"github.com/netsketch/netsketch/lab"
	"github.com/netsketch/netsketch/p4/bmv2"
	"github.com/netsketch/netsketch/p4/compiled"
)

// A lab that cannot start all switches returns the reason and ends the started ones.
func TestBMv2IsNotInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	fabric, err := lab.LeafSpine(2, 1, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	program, err := compiled.Load("forwarding")
	if err != nil {
		t.Fatal(err)
	}
	_, err = lab.New(lab.Config{Fabric: fabric, Program: program, BMv2: map[string]bool{"leaf2": true}})
	if !errors.Is(err, bmv2.ErrNotInstalled) {
		t.Errorf("%v", err)
	}
}
