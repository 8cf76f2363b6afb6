package controllers

import (
	"context"
	"net/http"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/nodeapi"
	"github.com/buildyard/buildyard/internal/cloudkey"
	"github.com/buildyard/buildyard/internal/farm"
)

// proofTimeout is how long a controller may take to prove that it is part of the cloud.
const proofTimeout = 5 * time.Second

// Prove has the controller at a URL prove that it is part of the node's cloud. The error has farm.CodeUnavailable when
// nothing was learned: the controller is down, or knows no proofs.
func Prove(ctx context.Context, identity datadir.Identity, transport http.RoundTripper, url string) error {
	url, err := cloudkey.CanonicalURL(url)
	if err != nil {
		return farm.Errorf(farm.CodeInvalid, "%s", err)
	}
	client, err := nodeapi.New(url, transport, "")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	nonce := cloudkey.NewNonce()
	proof, err := client.ProveCloud(ctx, api.CloudProofRequest{
		Protocol: api.LinkProtocol, NodeID: identity.NodeID, Nonce: nonce, URL: url,
		MAC: cloudkey.RequestMAC(cloudkey.CredentialDigest(identity.Credential), identity.NodeID, nonce, url),
	})
	switch code := farm.CodeOf(err); {
	case err == nil:
	case code == farm.CodeUnauthenticated:
		return farm.Errorf(farm.CodeUnauthenticated, "the controller at %s does not know this node", url)
	case code == farm.CodeNotFound:
		return farm.Unavailable(err,
			"The controller at %s is too old to prove that it belongs to this node's cloud", url)
	default:
		return err
	}
	if err := cloudkey.VerifyProof(identity.Cloud.Key, nonce, url, proof.Signature); err != nil {
		return farm.Errorf(farm.CodeForbidden, "the controller at %s is not part of this node's cloud: %s", url, err)
	}
	return nil
}

// wrongCloud reports whether a proof failed because the controller belongs to another cloud.
func wrongCloud(err error) bool {
	code := farm.CodeOf(err)
	return code == farm.CodeForbidden || code == farm.CodeUnauthenticated
}

// Unreachable is a controller that did not answer.
type Unreachable struct {
	URL string
	Err error
}

// CheckAll has every controller prove that it is part of the node's cloud. It returns those that did not answer, and an
// error if one did not prove it.
func CheckAll(
	ctx context.Context, identity datadir.Identity, transport http.RoundTripper, urls []string,
) (unreachable []Unreachable, err error) {
	for _, url := range urls {
		switch err := Prove(ctx, identity, transport, url); {
		case err == nil:
		case farm.CodeOf(err) != farm.CodeUnavailable:
			return nil, err
		default:
			unreachable = append(unreachable, Unreachable{url, err})
		}
	}
	return unreachable, nil
}
