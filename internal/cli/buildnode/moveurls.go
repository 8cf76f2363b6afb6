package buildnode

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/buildyard/buildyard/internal/agent/controllers"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/nodeapi"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cloudkey"
	"github.com/buildyard/buildyard/internal/farm"
)

// leaveAdvice ends messages about a node that cannot move.
const leaveAdvice = "to leave its cloud, which removes its VMs, run: buildnode disjoin"

// changesSettings reports whether a node that moves also sends its controller a credential or settings.
func (o *JoinOptions) changesSettings() bool {
	return o.Token != "" || o.key != nil || o.Name != "" || o.Host != "" || o.Groups != nil || o.Capacity != 0
}

// checkMove sets the URLs of a join in the identity, and reports whether a joined node gets controllers at other
// addresses. These have to prove that they belong to the node's cloud.
func (o *JoinOptions) checkMove(ctx context.Context, identity *datadir.Identity) (isMove bool, err error) {
	given := append([]string{o.ControllerURL}, o.OtherURLs...)
	for _, one := range given {
		if _, err := nodeapi.New(one, nil, ""); err != nil { // it suggests what was meant
			return false, err
		}
	}
	canonical, err := cloudkey.CanonicalURLs(given)
	if err != nil {
		return false, cli.Usage(err)
	}
	known := knownURLs(*identity)
	former := identity.ControllerURL
	identity.ControllerURL, identity.Cloud.ControllerURLs = o.ControllerURL, nil
	if len(canonical) > 1 {
		identity.Cloud.ControllerURLs = canonical
	}
	others := slices.DeleteFunc(slices.Clone(canonical), func(one string) bool { return slices.Contains(known, one) })
	if identity.NodeID == "" || len(others) == 0 {
		return false, nil
	}
	if identity.Cloud.Key == "" {
		return false, farm.Refused("This node belongs to %s, and does not know the key of its cloud yet: "+
			"start its agent once with a controller of this release, or run: buildnode disjoin", former)
	}

	transport, err := controllerTransport(*identity)
	if err != nil {
		return false, err
	}
	unreachable, err := controllers.CheckAll(ctx, *identity, transport, others)
	if err != nil {
		return false, farm.Refused("This node belongs to %s: %s; %s", former, err, leaveAdvice)
	}
	if len(unreachable) == len(canonical) {
		return false, farm.Refused("This node belongs to %s, and the other controller did not answer: %s; %s", former,
			unreachable[0].Err, leaveAdvice)
	}
	o.warnUnreachable(unreachable...)
	isReachable := func(one string) bool {
		return !slices.ContainsFunc(unreachable, func(u controllers.Unreachable) bool { return u.URL == one })
	}
	if !isReachable(canonical[0]) {
		identity.ControllerURL = canonical[slices.IndexFunc(canonical, isReachable)]
	}
	return true, nil
}

// knownURLs returns the addresses of the controllers that a node may send its credential to.
func knownURLs(identity datadir.Identity) []string {
	if identity.ControllerURL == "" {
		return nil
	}
	known, err := cloudkey.CanonicalURLs(append([]string{identity.ControllerURL}, identity.Cloud.ControllerURLs...))
	if err != nil {
		return nil
	}
	return known
}

// checkOthers has the other controllers of a join prove that they belong to the cloud of the one that answered. It
// removes those that do not from the identity, and returns why.
func (o *JoinOptions) checkOthers(ctx context.Context, identity *datadir.Identity) error {
	urls := identity.Cloud.ControllerURLs
	if len(urls) == 0 {
		return nil
	}
	identity.Cloud.ControllerURLs = nil
	if identity.Cloud.Key == "" {
		return farm.Refused("The controller at %s is too old for several URLs; give one", identity.ControllerURL)
	}
	transport, err := controllerTransport(*identity)
	if err != nil {
		return err
	}
	current, err := cloudkey.CanonicalURL(identity.ControllerURL)
	if err != nil {
		return err
	}
	var refused []error
	urls = slices.DeleteFunc(urls, func(one string) bool {
		if one == current {
			return false
		}
		switch err := controllers.Prove(ctx, *identity, transport, one); {
		case err == nil:
			return false
		case farm.CodeOf(err) == farm.CodeUnavailable:
			o.warnUnreachable(controllers.Unreachable{URL: one, Err: err})
			return false
		default:
			refused = append(refused, err)
			return true
		}
	})
	if len(urls) > 1 {
		identity.Cloud.ControllerURLs = urls
	}
	return errors.Join(refused...)
}

func (o *JoinOptions) warnUnreachable(list ...controllers.Unreachable) {
	for _, one := range list {
		if o.Warnings != nil {
			_, _ = fmt.Fprintf(o.Warnings, "warning: %s; it is checked before the agent uses it\n",
				cli.EscapeName(one.Err.Error()))
		}
	}
}
