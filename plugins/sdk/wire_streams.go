// SPDX-License-Identifier: Apache-2.0

// Epochs on the streams of the contract.

package sdk

import "github.com/netsketch/netsketch/plugins/sdk/pluginv1"

// RunSink sends epochs on a Run stream.
type RunSink struct {
	Send func(*pluginv1.RunRequest) error // Send of the stream
}

// Begin implements EpochSink.
func (s RunSink) Begin(m *pluginv1.EpochBegin) error {
	return s.Send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Begin{Begin: m}})
}

// Device implements EpochSink.
func (s RunSink) Device(m *pluginv1.DeviceChunk) error {
	return s.Send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Device{Device: m}})
}

// Host implements EpochSink.
func (s RunSink) Host(m *pluginv1.HostChunk) error {
	return s.Send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Host{Host: m}})
}

// End implements EpochSink.
func (s RunSink) End(m *pluginv1.EpochEnd) error {
	return s.Send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_End{End: m}})
}

// MergeSink sends an epoch's part on a Merge stream.
type MergeSink struct {
	Send func(*pluginv1.MergeRequest) error // Send of the stream
}

// Begin implements EpochSink.
func (s MergeSink) Begin(m *pluginv1.EpochBegin) error {
	return s.Send(&pluginv1.MergeRequest{Message: &pluginv1.MergeRequest_Begin{Begin: m}})
}

// Device implements EpochSink.
func (s MergeSink) Device(m *pluginv1.DeviceChunk) error {
	return s.Send(&pluginv1.MergeRequest{Message: &pluginv1.MergeRequest_Device{Device: m}})
}

// Host implements EpochSink.
func (s MergeSink) Host(m *pluginv1.HostChunk) error {
	return s.Send(&pluginv1.MergeRequest{Message: &pluginv1.MergeRequest_Host{Host: m}})
}

// End implements EpochSink.
func (s MergeSink) End(m *pluginv1.EpochEnd) error {
	return s.Send(&pluginv1.MergeRequest{Message: &pluginv1.MergeRequest_End{End: m}})
}

// mergedSink sends the merged part back.
type mergedSink struct {
	send func(*pluginv1.MergeResponse) error
}

func (s mergedSink) Begin(m *pluginv1.EpochBegin) error {
	return s.send(&pluginv1.MergeResponse{Message: &pluginv1.MergeResponse_Begin{Begin: m}})
}

func (s mergedSink) Device(m *pluginv1.DeviceChunk) error {
	return s.send(&pluginv1.MergeResponse{Message: &pluginv1.MergeResponse_Device{Device: m}})
}

func (s mergedSink) Host(m *pluginv1.HostChunk) error {
	return s.send(&pluginv1.MergeResponse{Message: &pluginv1.MergeResponse_Host{Host: m}})
}

func (s mergedSink) End(m *pluginv1.EpochEnd) error {
	return s.send(&pluginv1.MergeResponse{Message: &pluginv1.MergeResponse_End{End: m}})
}

// EpochMessage is a message that may contain a part of an epoch: RunRequest, MergeRequest or
// MergeResponse.
type EpochMessage interface {
	GetBegin() *pluginv1.EpochBegin
	GetDevice() *pluginv1.DeviceChunk
	GetHost() *pluginv1.HostChunk
	GetEnd() *pluginv1.EpochEnd
}

// Take decodes the part of an epoch in a message. It ignores a message without one.
func (d *EpochDecoder) Take(m EpochMessage) error {
	if begin := m.GetBegin(); begin != nil {
		return d.Begin(begin)
	}
	if chunk := m.GetDevice(); chunk != nil {
		return d.Device(chunk)
	}
	if chunk := m.GetHost(); chunk != nil {
		return d.Host(chunk)
	}
	if end := m.GetEnd(); end != nil {
		return d.End(end)
	}
	return nil
}
