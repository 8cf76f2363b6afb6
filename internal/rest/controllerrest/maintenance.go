package controllerrest

import (
	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/maintenance"
	"github.com/buildyard/buildyard/internal/rest"
)

// maxReason bounds the reason of a maintenance.
const maxReason = 1024

func (s *server) maintenance(*rest.Request) (any, error) {
	m, on := s.controller.Maintenance.Active()
	if !on {
		return api.Maintenance{}, nil
	}
	return m.Shown(), nil
}

func (s *server) beginMaintenance(r *rest.Request) (any, error) {
	length := r.Params.Duration("for", maintenance.MaxLength)
	reason := r.Params.Text("reason", maxReason)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	m, err := s.controller.Maintenance.Begin(r.Context(), length, reason)
	if err != nil {
		return nil, err
	}
	return m.Shown(), nil
}

func (s *server) endMaintenance(r *rest.Request) (any, error) {
	return nil, s.controller.Maintenance.End(r.Context())
}
