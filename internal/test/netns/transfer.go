// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Server is where h2 receives files.
const Server = "10.0.2.1:8000"

// Main runs a check. In a child process, whose arguments name a part of Send or Transfer, it runs
// this part instead. An error ends the process.
func Main(check func() error) {
	var err error
	switch arg := append(os.Args[1:], "", ""); arg[0] {
	case "receive":
		err = receive()
	case "send":
		var size int64
		if size, err = strconv.ParseInt(arg[1], 10, 64); err == nil {
			err = send(size)
		}
	case "capture":
		err = capture(arg[1])
	default:
		err = check()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAILED:", err)
		os.Exit(1)
	}
}

// receive prints a line when it listens. It then prints the size and the hash of the data that one
// connection transfers.
func receive() error {
	l, err := net.Listen("tcp", Server)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	c, err := l.Accept()
	if err != nil {
		return err
	}
	hash := sha256.New()
	n, err := io.Copy(hash, c)
	fmt.Println(n, hex.EncodeToString(hash.Sum(nil)))
	return err
}

// content returns the bytes of a file of the given size.
func content(size int64) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(b) // never fails
	return b
}

func send(size int64) error {
	c, err := net.Dial("tcp", Server)
	if err != nil {
		return err
	}
	_, err = c.Write(content(size))
	return errors.Join(err, c.Close())
}

// capture prints a line when it captures. When its input ends, it prints the hash of each packet
// from h1 to the Server, without fields that routers may change. With a device, it captures
// packets that leave by the device; without one, TCP packets that reach the stack, after the
// programs of an agent.
func capture(device string) error {
	s, front, err := open(device)
	if err != nil {
		return err
	}
	if err := unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
		return err
	}
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}); err != nil {
		return err
	}
	fmt.Println("ready")
	end := make(chan bool)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the input
		close(end)
	}()
	var seen []string
	frame := make([]byte, 1<<16)
	binary.BigEndian.PutUint16(frame[12:], 0x0800) // a socket may deliver frames without an Ethernet header
	for {
		n, err := unix.Read(s, frame[front:])
		switch {
		case err == nil:
			if hash := digest(frame[:front+n]); hash != "" {
				seen = append(seen, hash)
			}
			continue
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			return err
		}
		select {
		case <-end:
			const drops = 8 // index of the count of drops in SO_MEMINFO
			var words [drops + 1]uint32
			size := uint32(unsafe.Sizeof(words))
			if _, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s), unix.SOL_SOCKET, unix.SO_MEMINFO,
				uintptr(unsafe.Pointer(&words)), uintptr(unsafe.Pointer(&size)), 0); errno != 0 {
				return errno
			}
			if words[drops] > 0 {
				return fmt.Errorf("the capture of %q lost %d packets", device, words[drops])
			}
			_, err := fmt.Println(strings.Join(append(seen, "end"), "\n"))
			return err
		default:
		}
	}
}

// open returns a socket that captures, and the number of Ethernet header bytes that its packets
// lack.
func open(device string) (socket, lacks int, err error) {
	if device == "" {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		return s, 14, err
	}
	i, err := net.InterfaceByName(device)
	if err != nil {
		return 0, 0, err
	}
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // all protocols, in network order
	s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(s, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index})
	}
	return s, 0, err
}

// digest identifies a packet from h1 to the Server by its IP identification, length, TCP sequence
// number and hash; "" for any other packet. The hash leaves out MAC addresses, TTL and the IPv4
// checksum, because routers change them.
func digest(frame []byte) string {
	if len(frame) < 14+20+20 || binary.BigEndian.Uint16(frame[12:]) != 0x0800 {
		return ""
	}
	ip := slices.Clone(frame[14:])
	tcp := ip[int(ip[0]&15)*4:]
	if ip[9] != 6 || net.IP(ip[12:16]).String() != "10.0.1.1" || len(tcp) < 20 ||
		binary.BigEndian.Uint16(tcp[2:]) != 8000 {
		return ""
	}
	ip = ip[:min(int(binary.BigEndian.Uint16(ip[2:])), len(ip))] // without Ethernet's padding
	ip[8], ip[10], ip[11] = 0, 0, 0
	sum := sha256.Sum256(ip)
	return fmt.Sprintf("id=%d,length=%d,seq=%d,hash=%x", binary.BigEndian.Uint16(ip[4:]), len(ip),
		binary.BigEndian.Uint32(tcp[4:]), sum)
}

// child is a running program in a namespace that has reported that it is ready.
type child struct {
	*exec.Cmd
	in  io.Closer
	out io.Reader
}

func start(host string, args ...string) (*child, error) {
	cmd, err := Program(host, args...)
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
		return nil, err
	}
	var ready string
	if _, err := fmt.Fscanln(out, &ready); err != nil || ready != "ready" {
		return nil, fmt.Errorf("program %v in %s: %q, %w", args, host, ready, err)
	}
	return &child{cmd, in, out}, nil
}

// Send sends a file of the given size from h1 to h2 over TCP and calls during meanwhile. Every byte
// must arrive.
func Send(size int64, during func() error) error {
	to, err := start("h2", "receive")
	if err != nil {
		return err
	}
	defer func() { _ = to.Process.Kill() }() // fails if the process has ended
	from, err := Program("h1", "send", fmt.Sprint(size))
	if err != nil {
		return err
	}
	if err := from.Start(); err != nil {
		return err
	}
	time.Sleep(200 * time.Millisecond)
	if err := during(); err != nil {
		return err
	}
	var n int64
	var hash string
	if _, err := fmt.Fscanln(to.out, &n, &hash); err != nil {
		return fmt.Errorf("the program in h2: %w", err)
	}
	if err := errors.Join(from.Wait(), to.Wait()); err != nil {
		return err
	}
	want := sha256.Sum256(content(size))
	fmt.Printf("h2 received %d bytes\n", n)
	if n != size || hash != hex.EncodeToString(want[:]) {
		return fmt.Errorf("%d bytes with hash %s sent, %d with hash %s received", size, hex.EncodeToString(want[:]), n, hash)
	}
	return nil
}

// transfer sends a file as Send does, and returns the packets that h1 sent and h2 received.
func transfer(size int64, during func() error) (sent, received []string, err error) {
	var captures [2]*child
	for i, device := range []string{"eth0", ""} {
		if captures[i], err = start(fmt.Sprint("h", i+1), "capture", device); err != nil {
			return nil, nil, err
		}
		defer func() { _ = captures[i].Process.Kill() }() // fails if the process has ended
	}
	if err := Send(size, during); err != nil {
		return nil, nil, err
	}
	var lists [2][]string
	for i, capture := range captures {
		if err := capture.in.Close(); err != nil {
			return nil, nil, err
		}
		text, err := io.ReadAll(capture.out)
		if err := errors.Join(err, capture.Wait()); err != nil {
			return nil, nil, err
		}
		lists[i] = strings.Fields(string(text))
		lists[i] = lists[i][:len(lists[i])-1] // removes the line "end"
	}
	return lists[0], lists[1], nil
}

// Transfer sends a file as Send does, and returns how many packets arrived. Each packet must arrive
// as h1 sent it; switches may drop packets, and processors may reorder them.
func Transfer(size int64, during func() error) (int64, error) {
	sent, received, err := transfer(size, during)
	if err != nil {
		return 0, err
	}
	left := map[string]int{}
	for _, packet := range sent {
		left[packet]++
	}
	for n, packet := range received {
		if left[packet] == 0 {
			return 0, fmt.Errorf("h2 received packet %d, %s, %d times; h1 sent it %d times, and with its "+
				"sequence number %q", n, packet, count(received, packet), count(sent, packet), alike(sent, packet))
		}
		left[packet]--
	}
	fmt.Printf("h1 sent %d packets, h2 received %d of them as they were sent\n", len(sent), len(received))
	if len(received) < int(size/1500) {
		return 0, fmt.Errorf("only %d packets arrived for %d bytes", len(received), size)
	}
	return int64(len(received)), nil
}

func count(packets []string, packet string) (n int) {
	for _, p := range packets {
		if p == packet {
			n++
		}
	}
	return n
}

// alike returns the packets that have the same sequence number as a packet.
func alike(packets []string, packet string) (same []string) {
	seq := strings.Split(packet, ",")[2]
	for _, p := range packets {
		if strings.Contains(p, ","+seq+",") {
			same = append(same, p)
		}
	}
	return same
}
