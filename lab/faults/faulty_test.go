// SPDX-License-Identifier: Apache-2.0

// The plugin faulty misbehaves as its configuration or its environment says. The suite runs it
// beside a plugin that must not be affected, from the same binary as the tests.

package faults

import (
	"context"
	_ "embed"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang/table"
)

//go:embed acme-faulty.yang
var faultyModule string

const faultyList = "/acme-faulty:faulty/row"

// stderr and stdout are the process's descriptors, past the SDK's redirection.
var stdout, stderr = os.NewFile(1, "stdout"), os.NewFile(2, "stderr")

const garbage = "\x00\xff\xfe{\"@message\":5}\n1|1|unix|\x1b[31m|grpc|\n"

// runFaulty is the plugin. The environment variable FAULTY makes it misbehave before its handshake.
func runFaulty() {
	switch os.Getenv("FAULTY") {
	case "flood": // no handshake, output without end
		endless(stdout)
	case "silent":
		time.Sleep(time.Hour)
	case "socket": // a handshake, then garbage on the socket
		path := filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "garbage")
		l, err := net.Listen("unix", path)
		if err != nil {
			slog.Error("socket", "error", err)
			os.Exit(1)
		}
		fmt.Fprintf(stdout, "1|%d|unix|%s|grpc|\n", sdk.ProtocolVersion, path)
		for {
			c, err := l.Accept()
			if err != nil {
				os.Exit(1)
			}
			go endless(c)
		}
	case "child":
		time.Sleep(5 * time.Minute) // longer than a trial; the suite may be unable to end it
		os.Exit(0)
	}
	sdk.Serve(&misbehaving{})
}

// endless writes garbage until the other end is gone.
func endless(w interface{ Write([]byte) (int, error) }) {
	for b := []byte(strings.Repeat(garbage, 100)); ; {
		if _, err := w.Write(b); err != nil {
			return
		}
	}
}

type misbehaving struct {
	mode  string
	rows  int
	child int
	once  bool     // the flood or the child is running
	kept  [][]byte // memory of a process that uses ever more
}

// Describe implements sdk.Plugin.
func (f *misbehaving) Describe() sdk.Description {
	return sdk.Description{
		Name: "faulty", Version: "0.1.0", Summary: "misbehaves",
		ConfigSchema: `{"type": "object", "additionalProperties": false, "properties": {
			"mode": {"type": "string"}, "rows": {"type": "integer", "minimum": 0}}}`,
		Modules: []sdk.Module{{Name: "acme-faulty", Text: faultyModule}},
		Lists:   []sdk.List{{Path: faultyList}},
	}
}

// Configure implements sdk.Plugin.
func (f *misbehaving) Configure(_ context.Context, config sdk.Config, _ sdk.Network) (sdk.Settings, error) {
	var c struct {
		Mode string `yaml:"mode"`
		Rows int    `yaml:"rows"`
	}
	err := config.Decode(&c)
	f.mode, f.rows = c.Mode, c.Rows
	return sdk.Settings{}, err
}

// Analyze misbehaves as its mode says, then publishes a row.
func (f *misbehaving) Analyze(_ context.Context, epoch *sdk.Epoch) (*sdk.Results, error) {
	value, rows := 1.0, max(f.rows, 1)
	text := f.mode
	switch f.mode {
	case "exit":
		os.Exit(3)
	case "hang":
		time.Sleep(time.Hour)
	case "stderr", "stdout":
		if !f.once {
			go endless(map[string]*os.File{"stderr": stderr, "stdout": stdout}[f.mode])
		}
	case "child", "daemon":
		if !f.once {
			if err := f.startChild(); err != nil {
				return nil, err
			}
		}
	case "memory":
		for range 64 {
			b := make([]byte, 64<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			f.kept = append(f.kept, b)
		}
	case "huge":
		rows, text = 4_600/copies, strings.Repeat("x", 60<<10)
	case "rows":
		text = strings.Repeat("x", 200)
	case "nan":
		value = math.NaN()
	case "infinity":
		value = math.Inf(1)
	}
	f.once = true
	results := &sdk.Results{}
	path := faultyList
	if f.mode == "undeclared" {
		path = "/netsketch-univmon:univmon/node-summaries/node-summary"
	}
	t := f.table(path, epoch.Number, rows, text, value)
	results.Add(t, nil)
	if f.mode == "huge" { // one table in memory: where memory is slow, a large one is not built within the deadline
		for range copies - 1 {
			results.Add(t, nil)
		}
	}
	if f.mode == "events" {
		for i := range 100_000 {
			results.Events = append(results.Events, sdk.Event{Level: slog.LevelWarn, Message: fmt.Sprint("event ", i)})
		}
	}
	return results, nil
}

// copies is how often a plugin with huge results reports its table.
const copies = 10

// table returns rows with the same values. It does not use the builder, which leaves out numbers
// that a decimal cannot have.
func (f *misbehaving) table(path string, epoch uint64, rows int, text string, value float64) *table.Table {
	names, texts := make([]string, rows), make([]string, rows)
	epochs, values, children := make([]uint64, rows), make([]float64, rows), make([]uint64, rows)
	for i := range rows {
		names[i], texts[i], epochs[i], values[i], children[i] = fmt.Sprint("row", i), text, epoch, value, uint64(f.child)
		if f.mode == "huge" {
			texts[i] = fmt.Sprint(i, text)
		}
	}
	return &table.Table{
		List: path,
		Keys: []table.Column{table.Strings("name", names)},
		Values: []table.Column{table.Uint64s("state/epoch", epochs), table.Strings("state/text", texts),
			table.Float64s("state/value", values), table.Uint64s("state/child", children)},
	}
}

// startChild starts a process that leaves the process group and the session of the plugin, in mode
// child also its environment.
func (f *misbehaving) startChild() error {
	c := exec.Command(os.Args[0])
	if f.mode == "daemon" {
		c.Env = os.Environ()
	}
	c.Env = append(c.Env, "FAULTY=child")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return err
	}
	f.child = c.Process.Pid
	return nil
}
