package controllerrest

import (
	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/jointokens"
	"github.com/buildyard/buildyard/internal/rest"
)

// tokenRoutes returns the routes of the join tokens.
func (s *server) tokenRoutes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET " + api.PathJoinTokens, Permission: "change_node_config", Handle: s.listJoinTokens},
		{Pattern: "POST " + api.PathJoinTokens, Permission: "change_node_config", Handle: s.createJoinToken},
		{Pattern: "DELETE " + api.PathJoinTokens, Permission: "change_node_config", Handle: s.revokeJoinToken},
	}
}

func (s *server) listJoinTokens(*rest.Request) (any, error) {
	return s.controller.JoinTokens.List(), nil
}

// createJoinToken creates a token, whose secret is in this response only.
func (s *server) createJoinToken(r *rest.Request) (any, error) {
	req := jointokens.Request{
		Lifetime: r.Params.Duration("ttl", jointokens.MaxLifetime), Once: r.Params.Bool("once", false),
		Permanent:   r.Params.Bool("replace", false),
		Description: r.Params.Text("description", jointokens.MaxDescription),
		By:          rest.ActorOf(r.Context()).User,
	}
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	made, err := s.controller.JoinTokens.Create(r.Context(), req)
	if err != nil {
		return nil, err
	}
	rest.AuditSubject(r.Request, made.ID)
	return made, nil
}

func (s *server) revokeJoinToken(r *rest.Request) (any, error) {
	id := r.Params.Required("id")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if err := s.controller.JoinTokens.Revoke(r.Context(), id); err != nil {
		return nil, err
	}
	rest.AuditSubject(r.Request, id)
	return nil, nil
}
