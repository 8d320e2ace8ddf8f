// SPDX-License-Identifier: Apache-2.0

package selfstate

import (
	"errors"
	"runtime/metrics"
	"strings"
	"time"

	"github.com/openconfig/ygot/ygot"

	"github.com/netsketch/netsketch/collector/analysis"
	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/collector/devconfig"
	"github.com/netsketch/netsketch/collector/device"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/host"
	"github.com/netsketch/netsketch/collector/network"
	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/collector/southbound"
	"github.com/netsketch/netsketch/collector/topology"
	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/yang/bindings"
	"github.com/netsketch/netsketch/yang/table"
)

// maxText bounds the leaves that join several texts, in bytes. The YANG module has the same limit.
const maxText = 4096

// configuration declares the config leaves. The module has no leaves for secrets.
func configuration(cfg *config.Config) *bindings.Collector {
	out := &bindings.Collector{
		Name:        &cfg.Name,
		EpochLength: duration(cfg.Epoch.Interval),
		Guard:       duration(cfg.Epoch.Guard),
		Deadline:    duration(cfg.Epoch.Deadline),
		Device:      map[string]*bindings.Collector_Device{},
		Host:        map[string]*bindings.Collector_Host{},
		Plugin:      map[string]*bindings.Collector_Plugin{},
		Output:      map[string]*bindings.Collector_Output{},
	}
	for _, d := range cfg.Devices {
		out.Device[d.Name] = &bindings.Collector_Device{
			Node:     &d.Name,
			Address:  &d.Address,
			DeviceId: unlessZero(d.DeviceID),
			Program:  pipeline(d.Pipeline),
			Gnmi:     &bindings.Collector_Device_Gnmi{Address: unlessZero(d.GNMI.Address)},
		}
	}
	for _, name := range cfg.AgentHosts() {
		out.Host[name] = &bindings.Collector_Host{Node: &name}
	}
	for _, p := range cfg.Plugins.Instances {
		out.Plugin[p.Name] = &bindings.Collector_Plugin{Name: &p.Name}
	}
	for _, o := range cfg.Outputs {
		out.Output[o.Name] = &bindings.Collector_Output{Name: &o.Name, Type: &o.Type}
	}
	return out
}

// pipeline returns the name of a configured pipeline; nil if the device keeps its own.
func pipeline(p config.Pipeline) *string {
	if p.Keep {
		return nil
	}
	return unlessZero(p.String())
}

// state declares all state leaves except the epoch's. r is the report of an epoch that has just
// ended, or nil.
func (c *Component) state(cfg *config.Config, r *analysis.Report, outputs Outputs) *bindings.Collector {
	devices := c.deps.Network.Devices()
	failed := map[string]error{} // error of each device in that epoch
	if r != nil {
		for i := range r.Devices {
			if err := r.Devices[i].Err; err != nil {
				failed[r.Devices[i].Name] = err
			}
		}
	}
	out := &bindings.Collector{
		Name:           &cfg.Name,
		EpochLength:    duration(cfg.Epoch.Interval),
		Guard:          duration(cfg.Epoch.Guard),
		Deadline:       duration(cfg.Epoch.Deadline),
		Version:        &c.cfg.Version,
		Started:        timestamp(c.started),
		EpochsComplete: ygot.Uint64(c.epochs[epoch.Complete]),
		EpochsPartial:  ygot.Uint64(c.epochs[epoch.Partial]),
		EpochsLost:     ygot.Uint64(c.epochs[epoch.Lost]),
		WatchedFlows:   ygot.Uint32(uint32(c.deps.Analysis.WatchedRows())),
		Rows:           ygot.Uint64(uint64(c.deps.Store.Stats().Rows)),
		Heap:           heap(),
		Reload:         reload(c.deps.Reloads()),
		Device:         make(map[string]*bindings.Collector_Device, len(devices)),
		Host:           map[string]*bindings.Collector_Host{},
		Link:           map[string]*bindings.Collector_Link{},
		Plugin:         map[string]*bindings.Collector_Plugin{},
		Output:         outputs.ByName,
		Certificate:    map[string]*bindings.Collector_Certificate{},
	}
	if c.deps.Cluster != nil {
		if s := c.deps.Cluster(); s != nil {
			out.Cluster = clustered(s, cfg)
		}
	}
	if outputs.ByName != nil {
		out.Subscriptions = ygot.Uint32(uint32(outputs.Streams))
	}
	for _, d := range devices {
		out.Device[d.Name()] = c.device(d, failed[d.Name()])
	}
	for _, h := range c.deps.Hosts.Hosts() {
		out.Host[h.Name] = c.host(h)
	}
	for _, l := range c.deps.Discovery.Links() {
		out.Link[l.Port.String()] = link(l)
	}
	for _, s := range c.deps.Analysis.Status() {
		out.Plugin[s.Name] = c.plugin(s)
	}
	for _, s := range c.deps.Certificates.States() {
		out.Certificate[s.File] = certificate(s)
	}
	return out
}

// clustered declares the leaves that describe the collector's state in its cluster.
func clustered(s *Cluster, cfg *config.Config) *bindings.Collector_Cluster {
	var home []string
	for _, p := range cfg.Plugins.Instances {
		if s.View.Plugin(p.Name) == s.View.Self {
			home = append(home, p.Name)
		}
	}
	members := uint32(0)
	for _, m := range s.View.Members {
		if m.Active() {
			members++
		}
	}
	var refused *string
	if self, _ := s.View.Member(s.View.Self); self.State == cluster.Refused {
		refused = &self.Reason
	}
	x := &s.Exchange
	return &bindings.Collector_Cluster{
		Member:             &s.View.Self,
		Lease:              &s.View.Leased,
		Members:            &members,
		Refused:            refused,
		Plugins:            joined(home, ","),
		DevicesHandedOver:  &s.HandedOver,
		DevicesForced:      &s.Forced,
		EntriesFailed:      &s.EntriesFailed,
		HostEpochsSent:     &s.EpochsSent,
		HostEpochsReceived: &s.EpochsReceived,
		HostEpochsRefused:  &s.EpochsRefused,
		PartsSent:          &x.PartsSent,
		PartsFailed:        &x.PartsFailed,
		PartOctetsSent:     &x.PartBytesSent,
		PartsReceived:      &x.PartsReceived,
		PartOctetsReceived: &x.PartBytesReceived,
		PartsRepeated:      &x.PartsRepeated,
		PartsLate:          &x.PartsLate,
		PartsRefused:       &x.PartsRefused,
		PartsDeposed:       &x.PartsDeposed,
		SourcesDropped:     &x.SourcesDropped,
		ResultsSent:        &x.BatchesSent,
		ResultsFailed:      &x.BatchesFailed,
		ResultOctetsSent:   &x.BatchBytesSent,
		ResultsReceived:    &x.BatchesReceived,
		ResultsRefused:     &x.BatchesRefused,
		ResultsOld:         &x.BatchesOld,
		StatesFailed:       &x.StatesFailed,
	}
}

// reload declares the leaves that describe the latest reload.
func reload(s config.ReloadStatus) *bindings.Collector_Reload {
	out := &bindings.Collector_Reload{
		Status:  reloadStatus[s.State],
		Time:    timestamp(s.Time),
		Reason:  cut(s.Reason),
		Removal: cut(s.Removal),
	}
	if !s.ConfirmFrom.IsZero() {
		out.ConfirmFrom = timestamp(s.ConfirmFrom)
	}
	return out
}

// heap returns the memory occupied by objects.
func heap() *uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return nil
	}
	return ygot.Uint64(sample[0].Value.Uint64())
}

// epochState declares the leaves of the newest epoch.
func epochState(r *analysis.Report, outputs Outputs) *bindings.Collector_Epoch {
	var warnings []string
	devices, hosts := missing(r.Devices), missing(r.Hosts)
	for _, w := range r.Warnings {
		warnings = append(warnings, strings.TrimSpace(w.Source+" "+w.Reason))
	}
	return &bindings.Collector_Epoch{
		Number:           ygot.Uint64(r.Number),
		Status:           epochStatus[r.Status],
		Start:            timestamp(r.Start),
		End:              timestamp(r.End),
		DevicesExpected:  ygot.Uint32(uint32(len(r.Devices))),
		DevicesPresent:   ygot.Uint32(uint32(len(r.Devices) - len(devices))),
		DevicesMissing:   ygot.Uint32(uint32(len(devices))),
		HostsExpected:    ygot.Uint32(uint32(len(r.Hosts))),
		HostsPresent:     ygot.Uint32(uint32(len(r.Hosts) - len(hosts))),
		Missing:          joined(append(devices, hosts...), ","),
		AccuracyWarnings: joined(warnings, "; "),
		FlipTime:         duration(r.Stages.Flip),
		FlipSkew:         duration(r.Stages.Skew),
		WaitTime:         duration(r.Stages.Wait),
		ReadoutTime:      duration(r.Stages.Read),
		DrainTime:        duration(r.Stages.Drain),
		PlanTime:         duration(r.Stages.Plan),
		PluginTime:       duration(r.Stages.Plugin),
		PublishTime:      duration(r.Stages.Publish),
		TotalTime:        duration(r.Stages.Total),
		Cells:            ygot.Uint64(uint64(r.Cells)),
		Rows:             ygot.Uint64(uint64(r.Rows)),
		FirstUpdateTime:  unlessZero(uint64(outputs.FirstUpdate)),
	}
}

// missing returns the names of the devices that are missing from an epoch.
func missing(reports []analysis.DeviceReport) (names []string) {
	for _, d := range reports {
		if d.Err != nil {
			names = append(names, d.Name)
		}
	}
	return names
}

// host declares the leaves of a host with an agent.
func (c *Component) host(h host.Status) *bindings.Collector_Host {
	n := c.devices[h.Name]
	out := &bindings.Collector_Host{
		Node:            &h.Name,
		Connected:       &h.Connected,
		Address:         &h.Address,
		Version:         &h.Version,
		BootId:          &h.BootID,
		Roles:           joined(h.Roles, ","),
		Udp:             &h.UDP,
		Sessions:        &h.Sessions,
		SessionsRefused: &h.SessionsRefused,
		LastEpoch:       unlessZero(n.last),
		EpochsComplete:  ygot.Uint64(n.complete),
		EpochsLost:      ygot.Uint64(n.lost),
		EpochsBegun:     &h.Epochs,
		EpochsRefused:   &h.EpochsRefused,
		EpochsAhead:     &h.EpochsAhead,
		Leases:          &h.Leases,
		LeasesMissing:   &h.LeasesMissing,
		NoLease:         joined(h.NoLease, "; "),
		Reports:         &h.Reports,
		ReportBytes:     &h.ReportBytes,
		ReportsLate:     &h.ReportsLate,
		ReportsRefused:  &h.ReportsRefused,
		ReportsLost:     &h.ReportsLost,
		ReportTime:      duration(h.ReportTime),
		SettingsApplied: &h.SettingsApplied,
		SettingsRefused: &h.SettingsRefused,
		LastError:       ygot.String(h.LastError),
	}
	if !h.Since.IsZero() {
		out.Since = timestamp(h.Since)
	}
	return out
}

// device declares the leaves of a device. failed is its error in the epoch that has just ended.
func (c *Component) device(d network.Device, failed error) *bindings.Collector_Device {
	st, n := d.Status(), c.devices[d.Name()]
	leaf := struct { // one allocation, because there can be many devices
		name, address, program, lastError string
		readout, flip                     uint64
		deviceEpochs
		reconnects, packetIns, packetInsDropped uint64
	}{
		d.Name(), d.Address(), d.Program(), deviceError(st, failed),
		nanoseconds(st.ReadTime), nanoseconds(st.FlipTime), n,
		st.Counts.SessionsLost, st.Counts.PacketIns, st.Counts.PacketsDropped,
	}
	return &bindings.Collector_Device{
		Node:             &leaf.name,
		Address:          &leaf.address,
		DeviceId:         unlessZero(d.DeviceID()),
		Program:          &leaf.program,
		Connection:       connection(st.Session.State),
		Mastership:       mastership(st.Session.State),
		ReadoutMethod:    readoutMethod(st),
		ReadoutTime:      &leaf.readout,
		FlipTime:         &leaf.flip,
		LastEpoch:        unlessZero(leaf.last),
		EpochsComplete:   &leaf.complete,
		EpochsLost:       &leaf.lost,
		Reconnects:       &leaf.reconnects,
		PacketIns:        &leaf.packetIns,
		PacketInsDropped: &leaf.packetInsDropped,
		LastError:        &leaf.lastError,
		Gnmi:             c.gnmi(d.Name()),
		Configuration:    c.deviceConfiguration(d.Name()),
	}
}

// deviceConfiguration declares the leaves of a device's gNMI configuration; nil if the collector
// does not compare it.
func (c *Component) deviceConfiguration(name string) *bindings.Collector_Device_Configuration {
	s, ok := c.deps.Devconfig.Status(name)
	if !ok {
		return nil
	}
	out := &bindings.Collector_Device_Configuration{Mode: configureMode[s.Mode], Status: configurationStatus[s.State],
		Reason: cut(s.Reason)}
	if !s.Since.IsZero() {
		out.Compared = timestamp(s.Since)
	}
	return out
}

// leaves returns the table of all leaves that the file implies for devices.
func (c *Component) leaves(cfg *config.Config) (store.Publication, error) {
	b := table.NewBuilder(Root + "/devices/device/configuration/leaves/leaf")
	device, path := b.TextKey("device/node"), b.TextKey("path")
	desired, actual := b.Text("state/desired"), b.Text("state/actual")
	status, reason := b.Text("state/status"), b.Text("state/reason")
	for _, d := range cfg.Devices {
		s, _ := c.deps.Devconfig.Status(d.Name)
		for _, l := range s.Leaves {
			device.Append(d.Name)
			path.Append(l.Path)
			desired.Append(text(l.Desired))
			actual.Append(text(l.Actual))
			status.Append(string(l.Status))
			reason.Append(text(l.Reason))
		}
	}
	t, err := b.Table()
	return store.Publication{Table: t, Replace: true}, err
}

// deviceError returns the newest error of a device: the error in the epoch that has just ended, or
// the session's error if the epoch's error only follows from it.
func deviceError(st device.Status, failed error) string {
	if failed != nil && (st.LastError == "" || !isConsequence(failed)) {
		return failed.Error()
	}
	return st.LastError
}

// isConsequence reports whether an epoch's error only follows from an earlier error.
func isConsequence(err error) bool {
	return errors.Is(err, epoch.ErrJoining) || errors.Is(err, epoch.ErrStale)
}

// gnmi declares the leaves of a device's gNMI session; nil if it has none.
func (c *Component) gnmi(name string) *bindings.Collector_Device_Gnmi {
	s := c.deps.Discovery.Session(name)
	if s == nil {
		return nil
	}
	st, f := s.Status(), s.Facts()
	ports := uint32(0)
	for _, p := range f.Ports {
		if p.ID != 0 {
			ports++
		}
	}
	out := &bindings.Collector_Device_Gnmi{
		Address:        ygot.String(s.Address()),
		Connection:     st.State,
		LastError:      ygot.String(st.LastError),
		Reconnects:     ygot.Uint64(st.Reconnects),
		Notifications:  ygot.Uint64(st.Notifications),
		Updates:        ygot.Uint64(st.Updates),
		UpdatesUnknown: ygot.Uint64(st.Unknown),
		UpdatesRefused: ygot.Uint64(st.Refused),
		UpdatesStale:   ygot.Uint64(st.Stale),
		Ports:          &ports,

		SubscriptionsMissing: ygot.Uint32(uint32(st.Missing)),
		Neighbors:            ygot.Uint32(uint32(len(f.Neighbors))),
	}
	if len(f.DeviceIDs) > 0 {
		out.DeviceId = &f.DeviceIDs[0]
	}
	return out
}

// link declares the leaves of one end of a link.
func link(l southbound.Link) *bindings.Collector_Link {
	peer := func(p topology.Port) *string {
		if p == (topology.Port{}) {
			return nil
		}
		return ygot.String(p.String())
	}
	return &bindings.Collector_Link{
		Port:           ygot.String(l.Port.String()),
		Status:         l.Status,
		PeerConfigured: peer(l.Configured),
		PeerDiscovered: peer(l.Discovered),
	}
}

// plugin declares the leaves of a plugin.
func (c *Component) plugin(s analysis.Status) *bindings.Collector_Plugin {
	plans := c.deps.Intent.Counts(s.Name)
	return &bindings.Collector_Plugin{
		Name:            &s.Name,
		Version:         &s.Version,
		Status:          pluginStatus(s.State),
		Pid:             ygot.Uint32(uint32(s.PID)),
		Restarts:        &s.Restarts,
		EpochsAnalyzed:  &s.EpochsAnalyzed,
		EpochsLost:      &s.EpochsLost,
		AnalysisTime:    duration(s.AnalysisTime),
		Rows:            &s.Rows,
		RowsRefused:     &s.RowsRefused,
		PlansApplied:    &plans.Applied,
		PlansLate:       &plans.Late,
		PlansFailed:     &plans.Failed,
		LastPlanProblem: &plans.LastProblem,
		SavedEpoch:      unlessZero(s.SavedEpoch),
		LogLinesDropped: &s.LogLinesDropped,

		MemoryLimit:       ygot.Uint64(uint64(s.MemoryLimit)),
		MemoryLimitMethod: memoryLimitMethod[s.MemoryMethod],
		OutOfMemoryKills:  &s.OutOfMemoryKills,
		LastError:         ygot.String(s.LastError),
	}
}

// certificate declares the leaves of a certificate file.
func certificate(s certs.State) *bindings.Collector_Certificate {
	return &bindings.Collector_Certificate{
		File:      &s.File,
		Use:       joined(strings.Split(s.Use, ", "), ", "),
		Subject:   &s.Subject,
		NotAfter:  timestamp(s.NotAfter),
		DaysLeft:  ygot.Int32(int32(s.DaysLeft)),
		Status:    certificateStatus[s.Status],
		LastError: ygot.String(s.Problem),
	}
}

// Names of the states in the YANG module.
var (
	configureMode = map[config.Configure]bindings.E_Configuration_Mode{
		config.ConfigureCheck:   bindings.Configuration_Mode_CHECK,
		config.ConfigureApply:   bindings.Configuration_Mode_APPLY,
		config.ConfigureEnforce: bindings.Configuration_Mode_ENFORCE,
	}
	configurationStatus = map[devconfig.State]bindings.E_Configuration_Status{
		devconfig.Unread:        bindings.Configuration_Status_UNREAD,
		devconfig.Clean:         bindings.Configuration_Status_IN_EFFECT,
		devconfig.Differs:       bindings.Configuration_Status_DIFFERS,
		devconfig.Blocked:       bindings.Configuration_Status_REFUSED,
		devconfig.Ended:         bindings.Configuration_Status_ENFORCEMENT_ENDED,
		devconfig.Setting:       bindings.Configuration_Status_SETTING,
		devconfig.ReadingBack:   bindings.Configuration_Status_READING_BACK,
		devconfig.AwaitingState: bindings.Configuration_Status_AWAITING_STATE,
		devconfig.Connecting:    bindings.Configuration_Status_CONNECTING,
		devconfig.Confirming:    bindings.Configuration_Status_CONFIRMING,
		devconfig.Undoing:       bindings.Configuration_Status_UNDOING,
	}
	certificateStatus = map[certs.Status]bindings.E_Certificate_Status{
		certs.Valid:       bindings.Certificate_Status_VALID,
		certs.Expiring:    bindings.Certificate_Status_EXPIRING,
		certs.Expired:     bindings.Certificate_Status_EXPIRED,
		certs.NotYetValid: bindings.Certificate_Status_NOT_YET_VALID,
	}
	epochStatus = map[epoch.Status]bindings.E_Types_EpochStatus{
		epoch.Complete: bindings.Types_EpochStatus_COMPLETE,
		epoch.Partial:  bindings.Types_EpochStatus_PARTIAL,
		epoch.Lost:     bindings.Types_EpochStatus_LOST,
	}
	reloadStatus = map[config.ReloadState]bindings.E_Reload_Status{
		config.ReloadApplied: bindings.Reload_Status_APPLIED,
		config.ReloadRefused: bindings.Reload_Status_REFUSED,
		config.ReloadHeld:    bindings.Reload_Status_HELD,
	}
)

// memoryLimitMethod maps the methods to the YANG module's names.
var memoryLimitMethod = map[pluginhost.MemoryMethod]bindings.E_Plugin_MemoryLimitMethod{
	pluginhost.MemoryUnlimited: bindings.Plugin_MemoryLimitMethod_NONE,
	pluginhost.MemoryCgroup:    bindings.Plugin_MemoryLimitMethod_CGROUP,
	pluginhost.MemoryRlimit:    bindings.Plugin_MemoryLimitMethod_RLIMIT,
}

func connection(s p4rt.State) bindings.E_Device_Connection {
	switch s {
	case p4rt.Connecting:
		return bindings.Device_Connection_CONNECTING
	case p4rt.Arbitrating:
		return bindings.Device_Connection_ARBITRATING
	case p4rt.Provisioning, p4rt.Reconciling:
		return bindings.Device_Connection_PIPELINE
	case p4rt.Ready:
		return bindings.Device_Connection_READY
	case p4rt.Standby, p4rt.ReadOnly:
		return bindings.Device_Connection_BACKUP
	}
	return bindings.Device_Connection_DOWN
}

func mastership(s p4rt.State) bindings.E_Device_Mastership {
	switch s {
	case p4rt.Provisioning, p4rt.Reconciling, p4rt.Ready:
		return bindings.Device_Mastership_PRIMARY
	case p4rt.Standby, p4rt.ReadOnly:
		return bindings.Device_Mastership_BACKUP
	}
	return bindings.Device_Mastership_NONE
}

func readoutMethod(st device.Status) bindings.E_Device_ReadoutMethod {
	switch s := st.Session.State; {
	case s != p4rt.Ready && s != p4rt.Standby && s != p4rt.ReadOnly:
		return bindings.Device_ReadoutMethod_UNSET
	case st.Capabilities.PacketReadout:
		return bindings.Device_ReadoutMethod_PACKET
	}
	return bindings.Device_ReadoutMethod_REGISTER
}

func pluginStatus(s pluginhost.State) bindings.E_Plugin_Status {
	switch s {
	case pluginhost.StateRunning:
		return bindings.Plugin_Status_RUNNING
	case pluginhost.StateWaiting:
		return bindings.Plugin_Status_BACKOFF
	case pluginhost.StateFailed:
		return bindings.Plugin_Status_FAILED
	case pluginhost.StateStopped:
		return bindings.Plugin_Status_STOPPED
	}
	return bindings.Plugin_Status_STARTING
}

// duration returns a length of time as a leaf.
func duration(d time.Duration) *uint64 { return ygot.Uint64(nanoseconds(d)) }

// nanoseconds returns a length of time in nanoseconds, 0 if it is negative.
func nanoseconds(d time.Duration) uint64 { return uint64(max(0, d.Nanoseconds())) }

// timestamp returns a point in time in nanoseconds since 1970.
func timestamp(t time.Time) *uint64 { return ygot.Uint64(uint64(t.UnixNano())) }

// unlessZero returns a leaf that is absent if the value is the zero value.
func unlessZero[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// cut cuts a text after maxText bytes.
func cut(s string) *string {
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "")
	}
	return &s
}

// joined joins texts, and leaves out the last ones if all together exceed maxText.
func joined(texts []string, separator string) *string {
	s := strings.Join(texts, separator)
	if len(s) > maxText {
		s = s[:maxText]
		if i := strings.LastIndex(s, separator); i >= 0 {
			s = s[:i]
		}
	}
	return &s
}
