package controller

import (
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// License is the part of the cloud's license that a controller uses.
type License interface {
	Tier() farm.Tier    // what is open now
	Expires() time.Time // zero: never
	Alarm() string      // what an operator has to look at; "" for nothing
}

// Tier returns the license tier that is active now. Instances that were started under another tier
// continue.
func (c *Controller) Tier() farm.Tier { return c.opts.Licence.Tier() }

// unlicensed is a controller that no license was installed for: everything is open.
type unlicensed struct{}

var _ License = unlicensed{}

// Tier implements License.
func (unlicensed) Tier() farm.Tier { return farm.TierEnterprisePlus }

// Expires implements License.
func (unlicensed) Expires() time.Time { return time.Time{} }

// Alarm implements License.
func (unlicensed) Alarm() string { return "" }
