// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/files"
	"github.com/netsketch/netsketch/lab/switchgnmi"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/afport"
	"github.com/netsketch/netsketch/p4/softswitch/dataplane"
	"github.com/netsketch/netsketch/p4/softswitch/lldp"
	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver"
	"github.com/netsketch/netsketch/p4/softswitch/pcapport"
	"github.com/netsketch/netsketch/settings"
)

type switchFlags struct {
	name, listen, program, json, log string
	deviceID                         uint64
	cpuPort                          uint32
	ports, queues                    []string
	grpcPorts                        uint32
	parallel                         int
	real, once, lldp, unconfigured   bool
	playAfter                        time.Duration
	certFile, keyFile, clientCAFile  string
}

// lanes returns the number of packets that are processed concurrently. Packets of capture files
// are processed one after another, so that each run has the same result.
func (f *switchFlags) lanes() int {
	isInterface := func(port string) bool { return strings.Contains(port, "=@") }
	if f.parallel == 0 && slices.ContainsFunc(f.ports, isInterface) {
		return runtime.NumCPU()
	}
	return f.parallel
}

func switchCommand() *cobra.Command {
	var f switchFlags
	cmd := &cobra.Command{
		Use:   "switch",
		Short: "Run a P4 switch on this machine: P4Runtime, gNMI, ports on interfaces and pcap files",
		Long: `Run a P4 switch on this machine. It executes BMv2 JSON as p4c-bm2-ss makes it, a program of your own as
well as the built-in ones, and serves P4Runtime and gNMI (OpenConfig interfaces) on one address.

A port is a network interface of this machine (Linux, as root), or it reads packets from one capture
file and writes sent packets to another; either may be omitted. Files play together, in the order of
their packets' dates, once there is a pipeline: that of --program or --json, or the one that a controller
pushes. Ports of --grpc-ports receive and send packets over gRPC, as BMv2's do (service
p4.bm.DataplaneInterface), on the same address.`,
		Example: `  netsketch switch --listen 127.0.0.1:9559 --device-id 1
  netsketch switch --program forwarding --port 1=@veth0 --port 2=@veth2
  netsketch switch --json mine.json --port 1=in.pcap,out1.pcap --port 2=,out2.pcap --once`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSwitch(cmd, &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", "switch", "`name` in the log and in gNMI")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:9559", "`address` of the P4Runtime and gNMI server")
	flags.StringVar(&f.certFile, "cert-file", "",
		"`file` with the server's PEM certificate and its chain; plaintext when empty")
	flags.StringVar(&f.keyFile, "key-file", "", "`file` with the private key of --cert-file")
	flags.StringVar(&f.clientCAFile, "client-ca-file", "",
		"`file` with the PEM certificates to trust for clients; if given, clients need a certificate")
	cmd.MarkFlagsRequiredTogether("cert-file", "key-file")
	flags.Uint64Var(&f.deviceID, "device-id", 1, "P4Runtime device `id`")
	flags.BoolVar(&f.unconfigured, "unconfigured", false, "start without a P4Runtime device id and without port numbers, "+
		"as a switch from a box; gNMI sets them")
	flags.Uint32Var(&f.cpuPort, "cpu-port", softswitch.DefaultCPUPort, "CPU `port` number")
	flags.StringVar(&f.program, "program", "", "start with a built-in `program`: "+strings.Join(compiled.Names(), ", "))
	flags.StringVar(&f.json, "json", "", "start with the BMv2 JSON in this `file`")
	flags.StringArrayVar(&f.ports, "port", nil,
		"a port, as `NUMBER=IN.pcap,OUT.pcap` or NUMBER=@INTERFACE; repeat for more")
	flags.Uint32Var(&f.grpcPorts, "grpc-ports", 0,
		"create ports 0 to `N`-1, except those of --port, with packets over gRPC")
	flags.StringArrayVar(&f.queues, "queue", nil, "let packets wait for a port, as `NUMBER=RATE`[/DEPTH], in packets a "+
		"second and packets; RATE,RATE,... are the rates of the priorities from 0 on, as in BMv2; all=... sets all "+
		"existing ports; repeat for more")
	flags.IntVar(&f.parallel, "parallel", 0,
		"largest number `N` of packets processed at once; 0: the number of cores if a port is an interface, else 1")
	flags.BoolVar(&f.real, "real-time", false, "inject packets at the pace of the capture files, not as fast as possible")
	flags.DurationVar(&f.playAfter, "play-after", 0,
		"delay between the pipeline and the capture files, for a controller to write its entries")
	flags.BoolVar(&f.lldp, "lldp", false, "send LLDP frames from every port, and publish the received neighbors over gNMI")
	flags.BoolVar(&f.once, "once", false, "end when the capture files have been played")
	flags.StringVar(&f.log, "log", "info", "log `level`: debug, info, warn, error")
	return cmd
}

func (f *switchFlags) load() (*softswitch.Program, error) {
	switch {
	case f.deviceID == 0:
		return nil, errors.New("--device-id 0: P4Runtime reserves 0; expected 1 or more")
	case f.parallel < 0:
		return nil, fmt.Errorf("--parallel %d: expected 0 or more", f.parallel)
	case f.clientCAFile != "" && f.certFile == "":
		return nil, errors.New("--client-ca-file needs --cert-file: clients have certificates only if the server has one")
	case f.program != "" && f.json != "":
		return nil, errors.New("--program and --json exclude each other")
	case f.program != "":
		p, err := compiled.Load(f.program)
		if err != nil {
			return nil, err
		}
		return softswitch.Compile(p.JSON)
	case f.json != "":
		data, err := files.ReadText(f.json)
		if err != nil {
			return nil, err
		}
		p, err := softswitch.Compile(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.json, err)
		}
		return p, nil
	}
	return nil, nil
}

// portSpec is the value of one --port.
type portSpec struct {
	number  uint32
	iface   string // interface of this machine; empty if the port uses files
	in, out string
}

func parsePorts(args []string) ([]portSpec, error) {
	var out []portSpec
	for _, a := range args {
		number, what, ok := strings.Cut(a, "=")
		n, err := strconv.ParseUint(number, 10, 32)
		if err := settings.Decimal(number); err != nil {
			return nil, fmt.Errorf("--port %q: %w", a, err)
		}
		if !ok || err != nil || what == "@" {
			return nil, fmt.Errorf("--port %q: expected NUMBER=IN.pcap,OUT.pcap or NUMBER=@INTERFACE", a)
		}
		p := portSpec{number: uint32(n)}
		if p.iface, ok = strings.CutPrefix(what, "@"); !ok {
			p.iface = ""
			p.in, p.out, _ = strings.Cut(what, ",")
		}
		for _, q := range out {
			if p.iface != "" && p.iface == q.iface || files.Same(p.out, q.out) {
				return nil, fmt.Errorf("--port %q: port %d has %s already; each port needs its own", a, q.number,
					cmp.Or(p.iface, p.out))
			}
		}
		out = append(out, p)
	}
	for _, p := range out {
		for _, q := range out {
			if files.Same(p.out, q.in) {
				return nil, fmt.Errorf("--port %d: packets that leave would replace %s, whose packets arrive at port %d; write "+
					"them to another file", p.number, q.in, q.number)
			}
		}
	}
	return out, nil
}

// fileClock returns the clock of a switch whose queues use the time of its files; nil if packets
// come from interfaces or are played in real time.
func (f *switchFlags) fileClock(specs []portSpec) *pcapport.Clock {
	if len(f.queues) == 0 || f.real || f.grpcPorts > 0 ||
		slices.ContainsFunc(specs, func(s portSpec) bool { return s.iface != "" }) {
		return nil
	}
	return &pcapport.Clock{}
}

// queueSpec is the value of one --queue.
type queueSpec struct {
	number uint32
	all    bool
	port   softswitch.Port // port with the rates and depth of its queues
}

func parseQueues(args []string) ([]queueSpec, error) {
	var out []queueSpec
	for _, a := range args {
		wrong := fmt.Errorf("--queue %q: expected NUMBER=RATE, NUMBER=RATE/DEPTH or NUMBER=RATE,RATE,.../DEPTH, or all "+
			"instead of the number", a)
		for text := range strings.FieldsFuncSeq(a, func(r rune) bool { return strings.ContainsRune("=,/", r) }) {
			if err := settings.Decimal(text); err != nil {
				return nil, fmt.Errorf("--queue %q: %w", a, err)
			}
		}
		number, what, ok := strings.Cut(a, "=")
		q := queueSpec{all: number == "all"}
		if !ok {
			return nil, wrong
		}
		if !q.all {
			n, err := strconv.ParseUint(number, 10, 32)
			if err != nil {
				return nil, wrong
			}
			q.number = uint32(n)
		}
		rates, depth, deep := strings.Cut(what, "/")
		if deep {
			n, err := strconv.Atoi(depth)
			if err != nil || n < 1 {
				return nil, wrong
			}
			q.port.QueueDepth = n
		}
		each := strings.Split(rates, ",")
		for _, r := range each {
			n, err := strconv.ParseUint(r, 10, 64)
			if err != nil || n == 0 && len(each) == 1 {
				return nil, wrong
			}
			q.port.QueueRates = append(q.port.QueueRates, n)
		}
		if len(each) == 1 {
			q.port.QueueRate, q.port.QueueRates = q.port.QueueRates[0], nil
		}
		out = append(out, q)
	}
	return out, nil
}

// setQueues sets the queues of the existing ports; a --queue for one port takes precedence over a
// --queue for all.
func setQueues(sw *softswitch.Switch, specs []queueSpec) error {
	for _, forAll := range []bool{true, false} {
		for _, q := range specs {
			if q.all != forAll {
				continue
			}
			numbers := []uint32{q.number}
			if q.all {
				numbers = nil
				for _, p := range sw.Ports() {
					numbers = append(numbers, p.ID)
				}
			}
			for _, n := range numbers {
				if err := sw.SetQueues(n, q.port); err != nil {
					return fmt.Errorf("--queue: %w", err)
				}
			}
		}
	}
	return nil
}

// switchPorts are the ports of the command.
type switchPorts struct {
	files      []*pcapport.Port
	interfaces []*afport.Port
}

// open adds the ports to the switch. Even after an error, the caller must close the ports that
// were opened.
func (p *switchPorts) open(sw *softswitch.Switch, specs []portSpec, realTime bool, clock *pcapport.Clock,
	logger *slog.Logger,
) error {
	for _, s := range specs {
		if s.iface != "" {
			port, err := afport.Open(sw, s.number, afport.Config{Interface: s.iface, Logger: logger})
			if err != nil {
				return fmt.Errorf("--port %d=@%s: %w", s.number, s.iface, err)
			}
			p.interfaces = append(p.interfaces, port)
			continue
		}
		port, err := pcapport.Open(sw, s.number, pcapport.Config{In: s.in, Out: s.out, RealTime: realTime,
			Clock: clock})
		if err != nil {
			return fmt.Errorf("--port %d: %w", s.number, err)
		}
		p.files = append(p.files, port)
	}
	return nil
}

func (p *switchPorts) close() (err error) {
	for _, port := range p.interfaces {
		err = errors.Join(err, port.Close())
	}
	for _, port := range p.files {
		err = errors.Join(err, port.Close())
	}
	return err
}

func runSwitch(cmd *cobra.Command, f *switchFlags) (err error) {
	logger, err := newLogger(cmd.ErrOrStderr(), f.log)
	if err != nil {
		return err
	}
	specs, err := parsePorts(f.ports)
	if err != nil {
		return err
	}
	queues, err := parseQueues(f.queues)
	if err != nil {
		return err
	}
	clock := f.fileClock(specs)
	sw, err := f.newSwitch(clock, logger)
	if err != nil {
		return err
	}
	defer sw.Close()
	lis, err := net.Listen("tcp", f.listen)
	if err != nil {
		return fmt.Errorf("the P4Runtime server cannot listen on %s: %w; choose another address with --listen",
			f.listen, err)
	}
	defer lis.Close()
	var ports switchPorts
	defer func() { err = errors.Join(err, ports.close()) }()
	if err := ports.open(sw, specs, f.real, clock, logger); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(cmd.Context())
	var work sync.WaitGroup
	defer func() {
		stop()
		work.Wait()
	}()
	secured, err := f.secure(ctx, &work, logger)
	if err != nil {
		return err
	}
	rpc := grpc.NewServer(append(p4rtserver.ServerOptions(), secured)...)
	data, err := f.dataPlane(sw, specs, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	if err := setQueues(sw, queues); err != nil {
		return err
	}
	data.Register(rpc)
	server := p4rtserver.New(sw, p4rtserver.Options{DeviceID: f.deviceID, NoDeviceID: f.unconfigured,
		Logger: logger})
	server.Register(rpc)
	var agent *lldp.Agent
	if f.lldp {
		agent = lldp.New(sw, lldp.Config{SystemName: f.name, SystemDescription: "netsketch " + version, Logger: logger})
		defer agent.Close()
	}
	oc, err := switchgnmi.New(sw, switchgnmi.Options{Name: f.name, DeviceID: f.deviceID, Version: version, LLDP: agent,
		SetDeviceID: server.SetDeviceID, Unconfigured: f.unconfigured, Logger: logger})
	if err != nil {
		server.Close()
		return err
	}
	oc.Register(rpc)
	logger.Info("switch is up", "p4runtime", lis.Addr().String(), "tls", f.certFile != "", "device-id", f.deviceID,
		"program", f.program+f.json)

	if agent != nil {
		work.Go(func() { agent.Run(ctx) })
	}
	work.Go(func() {
		<-ctx.Done()
		server.Close()
		limit, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = oc.Close(limit) // remaining streams end with the gRPC server
		data.EndStream()
		stopGracefully(rpc)
	})
	var played error
	work.Go(func() {
		err := f.play(ctx, logger, sw, ports.files)
		switch {
		case f.once:
			played = err
			stop()
		case err != nil:
			logger.Error("capture files", "error", err) // controllers and other ports continue to work
		}
	})
	err = rpc.Serve(lis)
	stop()
	work.Wait()
	return errors.Join(played, err)
}

// newSwitch returns a switch that runs the program of the flags, if they name one. clock is nil for
// the time of day.
func (f *switchFlags) newSwitch(clock *pcapport.Clock, logger *slog.Logger) (*softswitch.Switch, error) {
	program, err := f.load()
	if err != nil {
		return nil, err
	}
	config := softswitch.Config{Name: f.name, CPUPort: f.cpuPort, Parallel: f.lanes(), Logger: logger}
	if clock != nil {
		config.Clock = clock.Now
	}
	sw := softswitch.New(config)
	if program == nil {
		return sw, nil
	}
	if err := sw.Load(program); err != nil {
		sw.Close()
		return nil, err
	}
	return sw, nil
}

// secure returns the gRPC option for TLS, if TLS is on. Changed certificate files take effect
// until ctx ends.
func (f *switchFlags) secure(ctx context.Context, work *sync.WaitGroup,
	logger *slog.Logger,
) (grpc.ServerOption, error) {
	if f.certFile == "" {
		return grpc.EmptyServerOption{}, nil
	}
	store := certs.New(certs.Options{Logger: logger})
	files := certs.Files{Cert: f.certFile, Key: f.keyFile, CA: f.clientCAFile}
	config, err := store.Server(files)
	if err != nil {
		return nil, err
	}
	store.Declare("switch", certs.Use{Name: "server of switch " + f.name, Server: true, Files: files})
	store.Start()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	work.Go(func() {
		defer store.Stop()
		defer signal.Stop(hangup)
		for {
			select {
			case <-hangup:
				store.Reload()
			case <-ctx.Done():
				return
			}
		}
	})
	return grpc.Creds(credentials.NewTLS(config)), nil
}

// dataPlane creates the ports of --grpc-ports.
func (f *switchFlags) dataPlane(sw *softswitch.Switch, specs []portSpec,
	logger *slog.Logger,
) (*dataplane.Server, error) {
	ports := []uint32{}
	for n := range min(f.grpcPorts, softswitch.DropPort) {
		if n != f.cpuPort && !slices.ContainsFunc(specs, func(s portSpec) bool { return s.number == n }) {
			ports = append(ports, n)
		}
	}
	return dataplane.New(sw, dataplane.Options{DeviceID: f.deviceID, Ports: ports, Logger: logger})
}

// play plays the capture files as soon as the switch has a pipeline. With --once it
// is an error if the switch is stopped before the files end.
func (f *switchFlags) play(ctx context.Context, logger *slog.Logger, sw *softswitch.Switch,
	ports []*pcapport.Port,
) error {
	stopped := func(played int) error {
		if !f.once {
			return nil
		}
		return fmt.Errorf("the switch was stopped after %d packets of its capture files", played)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for sw.Program() == nil {
		select {
		case <-ctx.Done():
			return stopped(0)
		case <-tick.C:
		}
	}
	select {
	case <-ctx.Done():
		return stopped(0)
	case <-time.After(f.playAfter):
	}
	begin := time.Now()
	played, err := pcapport.Play(ctx, ports...)
	read := 0
	for _, p := range ports {
		p.Warn(logger)
		read += p.Read()
	}
	if read > 0 || err != nil {
		logger.Info("capture files played", "read", read, "played", played, "seconds", time.Since(begin).Seconds())
	}
	switch {
	case ctx.Err() != nil:
		return stopped(played)
	case err == nil && played < read:
		return fmt.Errorf("%d of %d packets were not played: ports are down, or they exceed 256 KiB", read-played, read)
	}
	return err
}

// stopGracefully waits for calls to finish, and ends streams, which do not end by themselves.
func stopGracefully(rpc *grpc.Server) {
	done := make(chan struct{})
	go func() {
		rpc.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Second):
		rpc.Stop()
		<-done
	}
}
