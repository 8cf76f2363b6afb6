package anka

import (
	"context"
	"errors"

	"github.com/buildyard/buildyard/internal/hv"
)

var _ hv.LicenseReader = (*Driver)(nil)

const (
	validLicense = "valid" // status of a license

	// expiredLicense is when a license that is not valid has ended, so that the node shows as inactive.
	expiredLicense = "1970-01-01"
)

// ReadLicense asks anka for its license. A license that is missing or not valid counts as expired.
func (d *Driver) ReadLicense(ctx context.Context) (hv.License, error) {
	var shown shownLicense
	err := d.cli.ask(ctx, call{timeout: probeTimeout, args: []string{"license", "show"}}, &shown)
	if _, isReported := errors.AsType[*Error](err); err != nil && !isReported {
		return hv.License{}, err
	}
	license := hv.License{Kind: shown.Type, Expires: shown.Expires}
	if shown.Status != validLicense {
		license.Expires = expiredLicense
	}

	d.mu.Lock()
	isNew := license != d.license
	d.license = license
	d.mu.Unlock()

	if isNew && shown.Status != validLicense {
		status := printable(shown.Status)
		if err != nil {
			status = err.Error()
		}
		d.log.WarnContext(ctx, "anka starts no VMs: its license is not valid; activate one with anka license activate",
			"status", status)
	}
	return license, nil
}
