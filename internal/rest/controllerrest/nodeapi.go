package controllerrest

import (
	"context"
	"net/http"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/cloudkey"
	"github.com/buildyard/buildyard/internal/controller/nodeinput"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// join registers a node for a caller with the join token, or with the permission to join without it.
func (s *server) join(ctx context.Context, r *http.Request, in api.JoinRequest) (api.JoinAnswer, error) {
	if in.Token != "" { // a wrong token is always refused
		var answer api.JoinAnswer
		err := rest.LimitedCompare(r, s.guessLimiter, func() (err error) {
			answer, err = s.controller.Nodes.Join(ctx, in)
			return err
		})
		if err == nil {
			rest.AuditIdentity(r, auth.Identity{Name: answer.NodeID, Method: auth.ByNode})
		}
		return answer, err
	}
	caller := rest.CallerOf(ctx)
	if err := mayJoin(rest.JoinPolicyOf(ctx), caller); err != nil {
		return api.JoinAnswer{}, err
	}
	answer, err := s.controller.Nodes.JoinWithKey(ctx, in, caller.KeyID)
	if err == nil && !caller.IsAuthenticated() {
		rest.AuditIdentity(r, auth.Identity{Name: answer.NodeID, Method: auth.ByNode})
	}
	return answer, err
}

// mayJoin refuses a caller that may not join a node without the join token.
func mayJoin(door rest.JoinPolicy, caller rest.Caller) error {
	switch {
	case door == rest.JoinOpen, door == rest.JoinByCertificate && caller.Identity.Method == auth.ByCertificate:
		return nil
	case !caller.IsAuthenticated():
		return farm.Errorf(farm.CodeUnauthenticated,
			"join token, or another credential of a caller who may join nodes, required")
	}
	return caller.RequirePermission("change_node_config")
}

// proveCloud signs for a node that this controller belongs to its cloud. The node does not send its credential, but may
// authenticate with it as at the other routes.
func (s *server) proveCloud(_ context.Context, r *http.Request, in api.CloudProofRequest) (api.CloudProof, error) {
	err := s.controller.Link.AuthenticateRequest(in.NodeID, func(digest string) bool {
		return cloudkey.VerifyRequestMAC(digest, in.NodeID, in.Nonce, in.URL, in.MAC)
	})
	if err != nil {
		_, err = s.controller.Link.Authenticate(in.NodeID, nodeCredential(r))
	}
	if err == nil {
		err = nodeinput.CloudProof(&in)
	}
	if err != nil {
		return api.CloudProof{}, err
	}
	return s.controller.Cloud.Prove(in.Nonce, in.URL, r.RemoteAddr)
}

// registryToken returns a registry token for the purpose that the node names.
func (s *server) registryToken(
	ctx context.Context, r *http.Request, in api.RegistryTokenRequest,
) (api.RegistryTokenResponse, error) {
	node, err := s.controller.Link.Authenticate(in.NodeID, nodeCredential(r))
	if err == nil {
		err = nodeinput.Pass(&in)
	}
	if err != nil || s.issueRegistryToken == nil {
		return api.RegistryTokenResponse{}, err
	}
	scope, err := s.controller.TokenScopes.Of(ctx, node, in.Purpose)
	if err != nil {
		return api.RegistryTokenResponse{}, err
	}
	text, life := s.issueRegistryToken(node, scope)
	return api.RegistryTokenResponse{Pass: text, Life: int(life / time.Second)}, nil
}

// peers returns the nodes from which a node may read a version.
func (s *server) peers(ctx context.Context, r *http.Request, in api.PeersRequest) (api.PeersResponse, error) {
	node, err := s.controller.Link.Authenticate(in.NodeID, nodeCredential(r))
	if err == nil {
		err = nodeinput.Peers(&in)
	}
	if err != nil {
		return api.PeersResponse{}, err
	}
	return s.controller.Peers.For(ctx, node, in.ContentID, in.Excluded)
}
