package s3store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/lifecycle"
)

var removeOptions minio.RemoveObjectOptions

// ruleID names the lifecycle rule of the prefix.
func (b *Bucket) ruleID() string { return ruleIDPrefix + b.opts.Prefix }

const ruleIDPrefix = "buildyard-abort-incomplete-uploads-"

// ApplyLifecycle sets the rule that ends incomplete uploads below the prefix, or removes it. S3 replaces all rules of a
// bucket together, and the client library knows only some of their elements: a bucket with rules of others stays
// unchanged, and the result is an error that names the rule to add.
func (b *Bucket) ApplyLifecycle(ctx context.Context) error {
	current, err := b.core.GetBucketLifecycle(ctx, b.opts.Bucket)
	if minio.ToErrorResponse(err).Code == "NoSuchLifecycleConfiguration" {
		current, err = lifecycle.NewConfiguration(), nil
	}
	if err != nil {
		return fmt.Errorf("read the lifecycle rules of bucket %s: %w", b.opts.Bucket, err)
	}
	want := lifecycle.Rule{
		ID: b.ruleID(), Status: "Enabled", RuleFilter: lifecycle.Filter{Prefix: b.opts.Prefix},
		AbortIncompleteMultipartUpload: lifecycle.AbortIncompleteMultipartUpload{
			DaysAfterInitiation: lifecycle.ExpirationDays(b.opts.AbortIncompleteDays),
		},
	}
	i := slices.IndexFunc(current.Rules, func(r lifecycle.Rule) bool { return r.ID == want.ID })
	switch {
	case i < 0 && b.opts.AbortIncompleteDays == 0:
		return nil
	case i < 0:
		current.Rules = append(current.Rules, want)
	case b.opts.AbortIncompleteDays == 0:
		current.Rules = slices.Delete(current.Rules, i, i+1)
	case current.Rules[i].AbortIncompleteMultipartUpload == want.AbortIncompleteMultipartUpload:
		return nil
	default:
		current.Rules[i] = want
	}
	foreign := slices.IndexFunc(current.Rules, func(r lifecycle.Rule) bool {
		return !strings.HasPrefix(r.ID, ruleIDPrefix)
	})
	if foreign >= 0 {
		return fmt.Errorf("bucket %s has lifecycle rules of others (%q): they stay unchanged; add or remove the rule "+
			"that aborts incomplete multipart uploads below %q after %d days yourself",
			b.opts.Bucket, current.Rules[foreign].ID, b.opts.Prefix, b.opts.AbortIncompleteDays)
	}
	if err := b.core.SetBucketLifecycle(ctx, b.opts.Bucket, current); err != nil {
		return fmt.Errorf("write the lifecycle rules of bucket %s: %w", b.opts.Bucket, err)
	}
	return nil
}
