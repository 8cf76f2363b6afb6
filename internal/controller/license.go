package controller

import (
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// License is the part of the cloud's license that a controller uses.
type License interface {
	Tier() farm.Tier    // the active tier; instances that were started under another one continue
	Expires() time.Time // zero: never
	Alarm() string      // an error that requires an operator; "" for none
}

// unlicensed is the License of a controller without an installed license: all features are
// available.
type unlicensed struct{}

var _ License = unlicensed{}

// Tier implements License.
func (unlicensed) Tier() farm.Tier { return farm.TierEnterprisePlus }

// Expires implements License.
func (unlicensed) Expires() time.Time { return time.Time{} }

// Alarm implements License.
func (unlicensed) Alarm() string { return "" }
