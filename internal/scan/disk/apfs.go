package disk

import (
	"context"
	"fmt"
	"io"
	"io/fs"

	"github.com/buildyard/buildyard/internal/scan/fs/apfs"
)

// internalRoles are the roles of volumes that macOS uses internally. No packages are installed there.
var internalRoles = map[string]bool{
	"preboot": true, "recovery": true, "vm": true, "update": true, "xart": true, "hardware": true, "baseband": true,
	"installer": true, "prelogin": true, "sidecar": true,
}

const noRole = "none"

func openAPFS(ctx context.Context, r io.ReaderAt, size int64, keys *keyring) ([]Volume, []Skipped, error) {
	c, err := apfs.Open(r, size)
	if err != nil {
		return nil, nil, err
	}
	var vols []Volume
	var skipped []Skipped
	for _, v := range c.Volumes() {
		role := v.Role()
		name := fmt.Sprintf("volume %q (%s)", stripControl(v.Name()), role)
		if internalRoles[role] {
			skipped = append(skipped, Skipped{Name: name, Reason: reasonNoPackages})
			continue
		}
		if role == noRole {
			role, name = "", fmt.Sprintf("volume %q", stripControl(v.Name()))
		}
		if v.Encrypted() {
			given, err := keys.take()
			if err == nil && given == nil {
				skipped = append(skipped, Skipped{Name: name, Reason: reasonNoKey, MayHavePackages: true})
				continue
			}
			if err == nil {
				err = v.Unlock(ctx, given.list, given.apfs)
			}
			if err != nil {
				skipped = append(skipped, skippedWithError(name, unlockError(err)))
				continue
			}
		}
		if _, err := v.FS(); err != nil {
			skipped = append(skipped, skippedWithError(name, err))
			continue
		}
		vols = append(vols,
			Volume{
				Name: stripControl(v.Name()), Format: formatAPFS, Role: role, Group: v.Group(), Notes: c.Notes(),
				Open:     func() (fs.FS, error) { return v.FS() },
				Snapshot: func(name string) (fs.FS, error) { return v.SnapshotFS(name) },
			})
	}
	for _, err := range c.UnreadableParts() {
		skipped = append(skipped, skippedWithError("an APFS container", err))
	}
	if len(vols) == 0 && len(skipped) == 0 {
		skipped = append(skipped, Skipped{Name: "an APFS container", Reason: "it has no volume"})
	}
	return vols, skipped, nil
}
