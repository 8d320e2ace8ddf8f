// SPDX-License-Identifier: Apache-2.0

package p4rtserver

import (
	"context"
	"fmt"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver/entities"
)

// SetForwardingPipelineConfig verifies, saves and commits pipelines.
func (s *Server) SetForwardingPipelineConfig(_ context.Context,
	r *p4v1.SetForwardingPipelineConfigRequest,
) (*p4v1.SetForwardingPipelineConfigResponse, error) {
	done, err := s.beginWrite(r.GetDeviceId(), r.GetRole(), r.GetElectionId())
	if err != nil {
		return nil, err
	}
	defer done()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.setPipeline(r); err != nil {
		return nil, entities.Status(err)
	}
	return &p4v1.SetForwardingPipelineConfigResponse{}, nil
}

// setPipeline executes the request's action. The caller holds mu.
func (s *Server) setPipeline(r *p4v1.SetForwardingPipelineConfigRequest) error {
	action := r.GetAction()
	switch action {
	case p4v1.SetForwardingPipelineConfigRequest_COMMIT:
		if r.GetConfig() != nil {
			return status.Errorf(codes.InvalidArgument,
				"COMMIT takes no configuration: it commits the one saved before")
		}
		return s.commitSaved()
	case p4v1.SetForwardingPipelineConfigRequest_VERIFY, p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_SAVE,
		p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT,
		p4v1.SetForwardingPipelineConfigRequest_RECONCILE_AND_COMMIT:
	default:
		return status.Errorf(codes.InvalidArgument, "action %v is not defined", action)
	}
	if r.GetConfig() == nil {
		return status.Errorf(codes.InvalidArgument, "%v needs a configuration", action)
	}
	d, err := entities.New(r.GetConfig(), s.opt.Compile)
	if err != nil {
		return err
	}
	switch action {
	case p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_SAVE:
		return s.save(d)
	case p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT:
		return s.commit(d, nil)
	case p4v1.SetForwardingPipelineConfigRequest_RECONCILE_AND_COMMIT:
		return s.reconcileAndCommit(d)
	}
	return nil
}

// save stores a pipeline for COMMIT. Until then reads and writes go to a separate switch without
// ports, which checks them.
func (s *Server) save(d *entities.Device) error {
	if err := d.LoadShadow("saved pipeline"); err != nil {
		return err
	}
	s.dropShadow()
	s.shadow = d
	return nil
}

func (s *Server) dropShadow() {
	if s.shadow != nil {
		s.shadow.Close()
		s.shadow = nil
	}
}

func (s *Server) commitSaved() error {
	if s.shadow == nil {
		return status.Error(codes.NotFound, "no configuration was saved with VERIFY_AND_SAVE")
	}
	saved := s.shadow
	d, err := entities.New(saved.Config(), s.opt.Compile)
	if err != nil {
		return err
	}
	return s.commit(d, saved.Applied())
}

// commit loads a pipeline in the switch, which clears it, and replays updates.
func (s *Server) commit(d *entities.Device, replay []*p4v1.Update) error {
	if err := d.Load(s.sw); err != nil {
		return err
	}
	if s.digests != nil {
		s.digests.stop()
	}
	s.dropShadow()
	s.digests = newDigester(s, d.Catalog())
	d.OnDigest = s.digests.configure
	s.live = d
	s.packets.Store(newPacketPath(d.Catalog()))
	s.watchIdle(d)
	for _, u := range replay {
		if err := d.Restore(u); err != nil {
			return fmt.Errorf("replay %v: %w", u.GetType(), err)
		}
	}
	s.log.Info("pipeline committed", "tables", len(d.Catalog().Tables.All()))
	return nil
}

// reconcileAndCommit commits a pipeline and keeps the forwarding state. A shadow tests first that
// the state can be kept; if it cannot, nothing changes.
func (s *Server) reconcileAndCommit(d *entities.Device) error {
	if s.live == nil {
		return s.commit(d, nil)
	}
	state, err := s.live.State()
	if err != nil {
		return err
	}
	trial, err := entities.New(d.Config(), s.opt.Compile)
	if err != nil {
		return err
	}
	if err := trial.LoadShadow("trial of a pipeline"); err != nil {
		return err
	}
	defer trial.Close()
	for _, u := range state {
		if err := trial.Restore(u); err != nil {
			return status.Errorf(codes.InvalidArgument, "the forwarding state cannot be kept: %v",
				status.Convert(entities.Status(err)).Message())
		}
	}
	return s.commit(d, state)
}

// GetForwardingPipelineConfig returns the requested parts of the committed pipeline.
func (s *Server) GetForwardingPipelineConfig(_ context.Context,
	r *p4v1.GetForwardingPipelineConfigRequest,
) (*p4v1.GetForwardingPipelineConfigResponse, error) {
	if err := s.checkDevice(r.GetDeviceId()); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.live == nil {
		return &p4v1.GetForwardingPipelineConfigResponse{}, nil
	}
	have := s.live.Config()
	cfg := &p4v1.ForwardingPipelineConfig{Cookie: have.GetCookie()}
	switch r.GetResponseType() {
	case p4v1.GetForwardingPipelineConfigRequest_ALL:
		cfg.P4Info, cfg.P4DeviceConfig = have.GetP4Info(), have.GetP4DeviceConfig()
	case p4v1.GetForwardingPipelineConfigRequest_COOKIE_ONLY:
	case p4v1.GetForwardingPipelineConfigRequest_P4INFO_AND_COOKIE:
		cfg.P4Info = have.GetP4Info()
	case p4v1.GetForwardingPipelineConfigRequest_DEVICE_CONFIG_AND_COOKIE:
		cfg.P4DeviceConfig = have.GetP4DeviceConfig()
	default:
		return nil, status.Errorf(codes.InvalidArgument, "response type %v is not defined", r.GetResponseType())
	}
	return &p4v1.GetForwardingPipelineConfigResponse{Config: cfg}, nil
}

// target returns the device of reads and writes: a saved pipeline if there is one, else the live
// one. The caller holds mu.
func (s *Server) target() (*entities.Device, error) {
	if s.shadow != nil {
		return s.shadow, nil
	}
	if s.live == nil {
		return nil, status.Error(codes.FailedPrecondition, "no pipeline has been set")
	}
	return s.live, nil
}
