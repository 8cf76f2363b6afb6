package storeadmin

import (
	"context"
	"errors"
	"fmt"

	"github.com/buildyard/buildyard/internal/store"
)

// ExistingRecords selects what Restore does with records that the target has.
type ExistingRecords int

// The values of ExistingRecords.
const (
	RefuseExisting  ExistingRecords = iota // fail and leave them as they are
	ReplaceExisting                        // store a backup of them, then replace them
)

// Restore makes the records of a store those of a backup, which the caller has opened as source. The
// target is closed while it runs. It may be interrupted at any moment and run again.
func Restore(ctx context.Context, source, to Side, existing ExistingRecords, opts Options) (Result, error) {
	opts = opts.withDefaults()
	schema, err := source.schema(ctx)
	if err != nil {
		return Result{}, err
	}
	if err := schema.CompleteErr(); err != nil {
		return Result{}, fmt.Errorf("%s: %w", source.Name, err)
	}
	target, err := to.schema(ctx)
	if err != nil {
		return Result{}, err
	}

	replaced, err := prepareReplacement(ctx, to, target, existing, opts)
	if err != nil {
		return Result{}, err
	}
	if target, err = closeForCopy(ctx, to, target, source.Name, opts); err != nil {
		return Result{}, err
	}
	if err := opts.Settle(ctx); err != nil {
		return Result{}, err
	}
	done, err := copyAndOpen(ctx, copySides{source, to}, target.WithVersion(schema.Version()), "", opts)
	if err != nil {
		return Result{}, err
	}
	done.Replaced = replaced
	done.Records, err = to.countRecords(ctx)
	return done, err
}

// prepareReplacement checks that the target may be replaced, and stores a backup of its records.
func prepareReplacement(
	ctx context.Context, to Side, target store.Schema, existing ExistingRecords, opts Options,
) (backup string, err error) {
	if err := to.checkUnused(ctx); err != nil {
		return "", err
	}
	t := target.Transfer()
	incomplete := t != nil && t.State == store.TransferIncoming
	switch {
	case !target.Exists(), incomplete:
		return "", nil
	case existing == RefuseExisting:
		return "", fmt.Errorf("%s: %w", to.Name, ErrNotEmpty)
	case opts.Backup == nil:
		return "", errors.New("no place for a backup of the existing records")
	}
	if backup, err = opts.Backup(ctx, to); err != nil {
		return "", fmt.Errorf("back up the existing records of %s: %w", to.Name, err)
	}
	return backup, nil
}
