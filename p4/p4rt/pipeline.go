// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"context"
	"fmt"
	"sync"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// program is the program on the switch, as the session read or pushed it. Only the contents of
// unused change.
type program struct {
	cookie      uint64 // 0 if the switch has no pipeline
	catalog     *p4values.Catalog
	readout     *readoutHeaders       // nil if the program has no read-out control
	registerErr error                 // reason for which reading a RegisterEntry fails; nil if it works
	unused      map[uint32]*sync.Pool // by register: readParts that were released
}

func (s *session) program() *program {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.prog
}

// provision pushes the configured pipeline if the switch runs another one. Without a configured
// pipeline, it reads the switch's own.
func (s *session) provision() (step, error) {
	s.enter(Provisioning)
	want := s.c.cfg.Program
	if want == nil {
		if err := s.adopt(); err != nil {
			return nil, err
		}
		if s.program() == nil {
			return nil, fmt.Errorf("%s runs no pipeline, and none is configured", s.c.cfg.Target)
		}
		return s.reconcile, nil
	}
	cookie, err := s.getPipeline(p4v1.GetForwardingPipelineConfigRequest_COOKIE_ONLY)
	if err != nil {
		return nil, err
	}
	if cookie.GetCookie() == nil || cookie.GetCookie().GetCookie() != want.Cookie {
		err := s.push(want)
		if status.Code(err) == codes.PermissionDenied {
			s.permissionDenied(err)
			return s.judge, nil
		}
		if err != nil {
			return nil, err
		}
	}
	if err := s.learn(want.P4Info, want.Cookie); err != nil {
		return nil, err
	}
	return s.reconcile, nil
}

// adopt reads the program that runs on the switch, unless it read the same program before. It
// succeeds for a switch without a pipeline.
func (s *session) adopt() error {
	if p := s.program(); p != nil {
		cookie, err := s.getPipeline(p4v1.GetForwardingPipelineConfigRequest_COOKIE_ONLY)
		if err != nil || cookie.GetCookie() != nil && cookie.GetCookie().GetCookie() == p.cookie {
			return err
		}
	}
	cfg, err := s.getPipeline(p4v1.GetForwardingPipelineConfigRequest_P4INFO_AND_COOKIE)
	if err != nil || cfg.GetP4Info() == nil {
		return err
	}
	return s.learn(cfg.GetP4Info(), cfg.GetCookie().GetCookie())
}

// getPipeline reads a part of the pipeline's configuration; nil if there is no pipeline.
func (s *session) getPipeline(
	part p4v1.GetForwardingPipelineConfigRequest_ResponseType,
) (*p4v1.ForwardingPipelineConfig, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.c.cfg.CallTimeout)
	defer cancel()
	answer, err := s.rpc.GetForwardingPipelineConfig(ctx, &p4v1.GetForwardingPipelineConfigRequest{
		DeviceId: s.c.cfg.DeviceID, ResponseType: part,
	})
	if status.Code(err) == codes.FailedPrecondition { // BMv2's reply without a pipeline
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the pipeline's cookie from %s: %w", s.c.cfg.Target, err)
	}
	return answer.GetConfig(), nil
}

// push sets the pipeline, which clears all state of the switch.
func (s *session) push(p *Program) error {
	s.log.Info("pushing the pipeline", "program", p.Name, "cookie", p.Cookie)
	ctx, cancel := context.WithTimeout(s.ctx, s.c.cfg.PipelineTimeout)
	defer cancel()
	_, err := s.rpc.SetForwardingPipelineConfig(ctx, &p4v1.SetForwardingPipelineConfigRequest{
		DeviceId: s.c.cfg.DeviceID, Role: s.c.cfg.Role, ElectionId: s.bid.proto(),
		Action: p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT,
		Config: &p4v1.ForwardingPipelineConfig{
			P4Info: p.P4Info, P4DeviceConfig: p.DeviceConfig,
			Cookie: &p4v1.ForwardingPipelineConfig_Cookie{Cookie: p.Cookie},
		},
	})
	if err != nil {
		return fmt.Errorf("%w: %s does not accept program %q: %w", ErrPipelineRefused, s.c.cfg.Target, p.Name, err)
	}
	s.c.setStatus(func(st *Status) { st.Pushed = true })
	return nil
}

// learn sets the program of the session and probes its capabilities.
func (s *session) learn(info *p4configv1.P4Info, cookie uint64) error {
	cat, err := p4values.NewCatalog(info)
	if err != nil {
		return fmt.Errorf("program of %s: %w", s.c.cfg.Target, err)
	}
	p := &program{cookie: cookie, catalog: cat, readout: newReadoutHeaders(cat), registerErr: s.probeRegisters(cat),
		unused: map[uint32]*sync.Pool{}}
	for _, r := range cat.Registers.All() {
		p.unused[r.ID] = &sync.Pool{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prog = p
	return nil
}

// probeRegisters reads one cell, to learn whether the switch supports RegisterEntry.
func (s *session) probeRegisters(cat *p4values.Catalog) error {
	regs := cat.Registers.All()
	if len(regs) == 0 {
		return fmt.Errorf("%w: the program has no registers", ErrUnsupported)
	}
	for _, err := range s.read(s.ctx, []*p4v1.Entity{registerEntity(regs[0], 0)}) {
		if err != nil {
			return fmt.Errorf("%w: RegisterEntry: %w", ErrUnsupported, err)
		}
	}
	return nil
}
