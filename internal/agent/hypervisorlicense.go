package agent

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// licenseInterval is how often the license of the hypervisor is read: it may be activated, or end, at any
// time.
const licenseInterval = 2 * time.Minute

// licenseLoop keeps the hypervisor's license up to date. The next poll reports a change.
func (a *Agent) licenseLoop(ctx context.Context) error {
	reader, hasLicense := a.opts.Driver.(hv.LicenseReader)
	if !hasLicense {
		return nil
	}
	ticker := time.NewTicker(licenseInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			a.readLicense(ctx, reader)
		}
	}
}

func (a *Agent) readLicense(ctx context.Context, reader hv.LicenseReader) {
	license, err := reader.ReadLicense(ctx)
	if err != nil {
		if ctx.Err() == nil {
			a.log.Warn("reading the license of the hypervisor failed; the last one that was read counts", "error", err)
		}
		return
	}
	a.mu.Lock()
	before := a.hypervisorLicense
	a.hypervisorLicense = license
	a.mu.Unlock()

	if license != before {
		a.log.Info("license of the hypervisor changed", "license", license.Kind, "expires", license.Expires)
	}
}
