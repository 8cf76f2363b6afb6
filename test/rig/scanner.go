package rig

import (
	"context"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/license"
)

// BuildSmall builds a program of this module as users get it: without cgo and symbols.
func BuildSmall(ctx context.Context, to, dir string) error {
	_, err := Output(ctx, "", "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-ldflags=-s -w", "-o", to,
		"github.com/buildyard/buildyard/"+dir)
	return err
}

// LicenseScanner creates a license for the image scanner, whose files are in a directory, and
// returns the flags with which the scanner finds it.
func LicenseScanner(ctx context.Context, scanner, dir string, lasts time.Duration) ([]string, error) {
	secret, public, file := filepath.Join(dir, "a.key"), filepath.Join(dir, "a.pub"), filepath.Join(dir, "scanner.lic")
	if err := license.GenerateKeys(secret, public); err != nil {
		return nil, err
	}
	signer, err := license.ReadSecret(secret)
	if err != nil {
		return nil, err
	}
	key, err := license.IssueKey(signer,
		license.License{Product: license.ImageScanner, Tier: farm.TierBasic, Expires: time.Now().Add(lasts)})
	if err != nil {
		return nil, err
	}
	flags := []string{"-l", file, "--license-authority", public}
	_, err = Output(ctx, dir, scanner, append([]string{"license", "activate", key, "-q"}, flags...)...)
	return flags, err
}
