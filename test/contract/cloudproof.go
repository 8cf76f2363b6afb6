package main

import (
	"context"
	"fmt"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cloudkey"
)

// cloudProof joins a node, and has the controller prove to it that it belongs to the cloud: at its own address only,
// and only to a node that knows its credential.
func cloudProof(ctx context.Context, p *caseRunner) error {
	c := p.stage.clouds["up"]
	var joined api.JoinAnswer
	err := c.caller().Send(ctx, "POST", api.PathJoin, api.JoinRequest{
		Protocol: api.LinkProtocol, Token: fmt.Sprint(c.vars["token"]), Name: "proof", Host: "127.0.0.1",
	}, &joined)
	if err != nil {
		return err
	}
	own, err := cloudkey.CanonicalURL(c.controller)
	if err != nil {
		return err
	}
	for _, tt := range []struct {
		url, credential string
		ok              bool
	}{
		{own, joined.Credential, true},
		{own, "wrong", false},
		{"http://untrusted.example:8090", joined.Credential, false},
	} {
		nonce := cloudkey.NewNonce()
		var proof api.CloudProof
		err := c.caller().Send(ctx, "POST", api.PathCloudProof, api.CloudProofRequest{
			Protocol: api.LinkProtocol, NodeID: joined.NodeID, Nonce: nonce, URL: tt.url,
			MAC: cloudkey.RequestMAC(cloudkey.CredentialDigest(tt.credential), joined.NodeID, nonce, tt.url),
		}, &proof)
		if (err == nil) != tt.ok {
			return fmt.Errorf("a proof of %s: %w", tt.url, err)
		}
		if tt.ok {
			err = cloudkey.VerifyProof(joined.Cloud.Key, nonce, tt.url, proof.Signature)
		}
		if tt.ok && err != nil {
			return err
		}
	}
	return c.caller().Send(ctx, "DELETE", "/api/v1/node?node_id="+joined.NodeID, nil, nil)
}
