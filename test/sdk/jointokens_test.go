package sdk_test

import (
	"errors"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

func (x *tour) joinTokens() {
	ctx := x.Context()
	made, err := x.c.CreateJoinToken(ctx, api.CreateJoinToken{TTL: "1h", Once: true, Description: "a test"})
	x.ok(err)
	list, err := x.c.JoinTokens(ctx)
	x.ok(err)
	isMade := func(t api.JoinToken) bool { return t.ID == made.Info.ID && t.Once && t.Token == "" }
	if made.Reveal() == "" || !slices.ContainsFunc(list, isMade) {
		x.Errorf("%+v %+v", made.Info, list)
	}
	x.ok(x.c.RevokeJoinToken(ctx, made.Info.ID))
	if err := x.c.RevokeJoinToken(ctx, made.Info.ID); !errors.Is(err, client.ErrNotFound) {
		x.Errorf("revoked twice: %v", err)
	}
}

// rollouts: the controller has no packages, and refuses what needs a rollout.
func (x *tour) rollouts() {
	ctx := x.Context()
	if _, err := x.c.Rollout(ctx); !errors.Is(err, client.ErrNotFound) {
		x.Errorf("there was no rollout: %v", err)
	}
	if _, err := x.c.StartRollout(ctx, api.StartRollout{BatchNodes: 1}); !errors.Is(err, client.ErrRefused) {
		x.Errorf("started without a package: %v", err)
	}
	if _, err := x.c.ChangeRollout(ctx, api.ChangeRollout{Action: "pause"}); !errors.Is(err, client.ErrRefused) {
		x.Errorf("paused nothing: %v", err)
	}
}
