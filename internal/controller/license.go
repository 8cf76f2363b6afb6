package controller

import (
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/metric"
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

// licenseFamilies returns the metrics of the license.
func licenseFamilies(l License) []metric.Family {
	return []metric.Family{
		{
			Name: "buildyard_license_info", Kind: metric.KindGauge, Labels: []string{"tier"},
			Help: "Always 1; the label is the tier of the active license",
			Read: func(s *metric.Series) { s.Value(1, string(l.Tier())) },
		},
		{
			Name: "buildyard_license_expires_timestamp_seconds", Kind: metric.KindGauge,
			Help: "License expiry (Unix seconds); absent if it does not expire",
			Read: func(s *metric.Series) {
				if at := l.Expires(); !at.IsZero() {
					s.Value(float64(at.Unix()))
				}
			},
		},
	}
}
