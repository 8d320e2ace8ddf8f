// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/test/testkit"
)

func TestLogRate(t *testing.T) {
	var logs testkit.Log
	sink := newLogSink(logs.Logger(), 10, 5)
	now := time.Unix(100, 0)
	sink.now = func() time.Time { return now }
	w := sink.writer("stderr")
	write := func(text string) {
		if n, err := io.WriteString(w, text); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
	}
	write(strings.Repeat("line\n", 8) + "begin")
	if sink.dropped.Load() != 3 {
		t.Errorf("%d dropped", sink.dropped.Load())
	}
	now = now.Add(time.Second)
	write("ning\r\n\n")
	text := logs.String()
	if strings.Count(text, "msg=line") != 5 || !strings.Contains(text, "dropped=3") ||
		!strings.Contains(text, "msg=beginning") {
		t.Error(text)
	}
	for range 80 { // 8 seconds without end
		now = now.Add(100 * time.Millisecond)
		write(strings.Repeat("line\n", 8))
	}
	if text = logs.String(); strings.Count(text, "lines were dropped") != 1 {
		t.Errorf("reports of dropped lines within 10 seconds:\n%s", text)
	}
	sink.flushDrops(0)
	if total := sink.dropped.Load(); !strings.Contains(logs.String(), fmt.Sprintf("dropped=%d\n", total-3)) {
		t.Errorf("of %d dropped lines, these were reported:\n%s", total, logs.String())
	}
}

func TestStderrTail(t *testing.T) {
	sink := newLogSink(slog.New(slog.DiscardHandler), 1e6, 1e6)
	w := sink.writer("stderr")
	write := func(lines ...string) {
		for _, l := range lines {
			_, _ = io.WriteString(w, l+"\n")
		}
	}
	write("1", "2", "3", "4", "5", "6", "7", `{"@message":"structured"}`)
	if got := sink.stderrTail(); got != "2 | 3 | 4 | 5 | 6 | 7" {
		t.Error(got)
	}
	write(`{"@message":"no license","@level":"error","error":"it ended"}`, `{"@message":"x","@level":"warn"}`)
	if got := sink.stderrTail(); got != "3 | 4 | 5 | 6 | 7 | no license: it ended" {
		t.Error(got)
	}
	write("panic: oh", "goroutine 1", "a", "b", "c", "d", "e")
	if got := sink.stderrTail(); got != "panic: oh | goroutine 1 | a | b | c | d" {
		t.Error(got)
	}
	sink.reset()
	write(strings.Repeat("x", 5000), strings.Repeat("é", 5000), "z")
	if got := sink.stderrTail(); len(got) > tailBytes+10 || sink.panicking {
		t.Error(len(got))
	}
}

// The end of a plugin's output is kept for the exit error, even if the plugin exceeds its log rate,
// and even if it recovered from a panic long before.
func TestLastWords(t *testing.T) {
	var log testkit.Log
	sink := newLogSink(log.Logger(), 0, 1)
	now := time.Unix(1000, 0)
	sink.now = func() time.Time { return now }
	w := sink.writer("stderr")
	write := func(line string) { _, _ = io.WriteString(w, line+"\n") }
	for range 100 {
		write("busy")
		write(`{"@message":"busy"}`)
	}
	write("panic: boom")
	for i := range 8 {
		write(fmt.Sprint("frame ", i))
	}
	if got := sink.stderrTail(); got != "panic: boom | frame 0 | frame 1 | frame 2 | frame 3 | frame 4" {
		t.Error(got)
	}
	now = now.Add(time.Hour)
	write("cannot open the database")
	if got := sink.stderrTail(); !strings.HasSuffix(got, "frame 4 | cannot open the database") {
		t.Error(got)
	}
	write(`{"@message":"the disk is full","@level":"error"}`)
	if got := sink.stderrTail(); !strings.HasSuffix(got, "cannot open the database | the disk is full") {
		t.Error(got)
	}
	if n := strings.Count(log.String(), "busy"); n != 1 {
		t.Errorf("%d lines are logged; the rate allows 1", n)
	}
}

func FuzzLogLine(f *testing.F) {
	for _, seed := range []string{
		`{"@message":5}`, `{"@message":"m","@level":"warn","a":{"b":1},"c":null,"d":[true]}`, "plain\r\n\n\x00\xff",
		`{"@message":"` + strings.Repeat("x", maxLogLine),
		"panic: x\ngoroutine 1 [running]:\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		sink := newLogSink(slog.New(slog.NewJSONHandler(io.Discard, nil)), 1e9, 1e9)
		w := sink.writer("stdout")
		for len(data) > 0 {
			n := min(7, len(data))
			if _, err := w.Write(data[:n]); err != nil {
				t.Fatal(err)
			}
			data = data[n:]
		}
		_, _ = w.Write([]byte{'\n'})
		if len(sink.stderrTail()) > tailBytes+10 {
			t.Fatalf("%d bytes of tail", len(sink.stderrTail()))
		}
	})
}

func FuzzHandshakeReader(f *testing.F) {
	for _, seed := range []string{"1|1|unix|/tmp/x|grpc|abc\n", "hello\n1|1|tcp|127.0.0.1:1|grpc\nmore\n",
		"1|99999999999999999999|unix|x", strings.Repeat("x", 100_000), "|||\n"} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(dir, "out")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		p := &process{stdout: &handshakeReader{file: file, in: bufio.NewReaderSize(file, 64<<10),
			logs: newLogSink(slog.New(slog.DiscardHandler), 1, 1).writer("stdout")}}
		out, err := io.ReadAll(p.stdout)
		if err != nil {
			t.Fatal(err)
		}
		if handshake := p.stdout.handshake(); strings.TrimSpace(string(out)) != handshake {
			t.Fatalf("go-plugin reads %q, the handshake is %q", out, handshake)
		}
		_ = p.version()
	})
}

// Numbers are logged as they were written.
func TestNumbersInLines(t *testing.T) {
	var logs testkit.Log
	w := newLogSink(logs.Logger(), 1e6, 1e6).writer("stderr")
	_, _ = io.WriteString(w, `{"@message":"m","epoch":1795233445,"largest":18446744073709551615,"share":0.25,`+
		`"long":`+strings.Repeat("9", 5000)+"}\n")
	text := logs.String()
	for _, want := range []string{"msg=m epoch=1795233445 largest=18446744073709551615 ", " share=0.25", "9…"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
}
