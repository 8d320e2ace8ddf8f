// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/nats-io/nkeys"

	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/internal/config"
)

// TestEncodings: every text that a program reads may begin with a byte order mark and end its
// lines with CR LF, as editors of Windows write it. UTF-16 is refused by its name.
func TestEncodings(t *testing.T) {
	dir := t.TempDir()
	read := func(path string) string {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const info = "../../examples/cocosketch/p4/cocosketch.p4info.txtpb"
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	run := func(args string) func(string) error {
		return func(file string) error {
			out, err := command(t, "", strings.Fields(strings.ReplaceAll(args, "FILE", file))...)
			if err != nil {
				err = fmt.Errorf("%w\n%s", err, out)
			}
			return err
		}
	}
	for _, reader := range []struct {
		name, text string
		read       func(file string) error
	}{
		{"p4info", read(info), run("p4 check " + exampleProgram + " --p4info FILE")},
		{"program.json", read(exampleProgram), run("p4 check FILE --p4info " + info)},
		{"switch.json", read("../../p4/compiled/forwarding.json"), run("switch --json FILE --once --port 1=" +
			udp(t, 3) + " --listen 127.0.0.1:0")},
		{"document.json", "{\n}\n", run("yang validate FILE --plugins " + plugins)},
		{"netsketch.yaml", read("../../configs/netsketch.yaml"), func(file string) error {
			_, err := config.Load(file)
			return err
		}},
		{"scenario.yaml", read("../../examples/univmon/hosts.yaml"),
			run("demo --scenario FILE --virtual --json --gnmi 127.0.0.1:0 --plugins " + plugins)},
		{"user.creds", "-----BEGIN USER NKEY SEED-----\n" + string(seed) + "\n", bus.CheckCredentials},
	} {
		t.Run(reader.name, func(t *testing.T) {
			units := utf16.Encode([]rune("\ufeff" + reader.text))
			for name, text := range map[string]string{
				"plain": reader.text,
				"mark":  "\ufeff" + reader.text,
				"CR LF": "\ufeff" + strings.ReplaceAll(reader.text, "\n", "\r\n"),
			} {
				file := write(reader.name, text)
				if err := reader.read(file); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			for name, order := range map[string]binary.AppendByteOrder{"little": binary.LittleEndian, "big": binary.BigEndian} {
				var text []byte
				for _, u := range units {
					text = order.AppendUint16(text, u)
				}
				file := write(reader.name, string(text))
				if err := reader.read(file); err == nil || !strings.Contains(err.Error(), "is UTF-16; save it as UTF-8") {
					t.Errorf("UTF-16, %s endian: %v", name, err)
				}
			}
		})
	}
}
