package s3store

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// selfTestPrefix begins the keys of the objects of a self-test, which it removes.
const selfTestPrefix = ".selftest/"

// selfTestWriters is the number of writers that create one object concurrently.
const selfTestWriters = 8

// SelfTest checks that the server has the properties on which the registry relies: conditional writes, listings that
// show the newest write, ranges and multipart uploads. The error names the first property that is missing.
func (b *Bucket) SelfTest(ctx context.Context) (err error) {
	dir := selfTestPrefix + rand.Text() + "/"
	defer func() { err = errors.Join(err, b.removeTestObjects(context.WithoutCancel(ctx), dir)) }()
	for _, test := range []struct {
		property string
		run      func(ctx context.Context, dir string) error
	}{
		{"conditional writes", b.testConditions},
		{"one winner of concurrent conditional writes", b.testRace},
		{"listings that show the newest write", b.testListing},
		{"ranges of objects", b.testRange},
		{"multipart uploads", b.testMultipart},
	} {
		if err := test.run(ctx, dir); err != nil {
			return fmt.Errorf("the S3 server of %s does not support %s as the registry needs them: %w", b,
				test.property, err)
		}
	}
	return nil
}

func (b *Bucket) removeTestObjects(ctx context.Context, dir string) error {
	return b.List(ctx, dir, func(o Object) error {
		return describe(b.core.RemoveObject(ctx, b.opts.Bucket, b.fullKey(o.Key), removeOptions), "remove %s", o.Key)
	})
}

func (b *Bucket) testConditions(ctx context.Context, dir string) error {
	key := dir + "conditions"
	first, err := b.Put(ctx, key, []byte("1"), Condition{Absent: true})
	if err != nil {
		return err
	}
	if _, err := b.Put(ctx, key, []byte("2"), Condition{Absent: true}); !errors.Is(err, ErrConflict) {
		return fmt.Errorf("a second write with If-None-Match was not refused (%w)", orNone(err))
	}
	second, err := b.Put(ctx, key, []byte("3"), Condition{ETag: first})
	if err != nil {
		return err
	}
	if second == first {
		return errors.New("a changed object has the same ETag")
	}
	if _, err := b.Put(ctx, key, []byte("4"), Condition{ETag: first}); !errors.Is(err, ErrConflict) {
		return fmt.Errorf("a write with an old ETag in If-Match was not refused (%w)", orNone(err))
	}
	stored, at, err := b.Get(ctx, key, 16)
	if err != nil {
		return err
	}
	if string(stored) != "3" || trimETag(at.ETag) != trimETag(second) {
		return fmt.Errorf("a read after a write returned %q", stored)
	}
	return nil
}

// errNoError stands for a success in messages.
var errNoError = errors.New("it succeeded")

func orNone(err error) error {
	if err == nil {
		return errNoError
	}
	return err
}

func (b *Bucket) testRace(ctx context.Context, dir string) error {
	var winners atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for i := range selfTestWriters {
		group.Go(func() error {
			_, err := b.Put(ctx, dir+"race", fmt.Appendf(nil, "writer %d", i), Condition{Absent: true})
			if err == nil {
				winners.Add(1)
			}
			if errors.Is(err, ErrConflict) {
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if n := winners.Load(); n != 1 {
		return fmt.Errorf("%d of %d writers succeeded", n, selfTestWriters)
	}
	return nil
}

func (b *Bucket) testListing(ctx context.Context, dir string) error {
	key := dir + "listing"
	if _, err := b.Put(ctx, key, []byte("listed"), Condition{}); err != nil {
		return err
	}
	found := Object{}
	if err := b.List(ctx, key, func(o Object) error { found = o; return nil }); err != nil {
		return err
	}
	if found.Key != key || found.Size != int64(len("listed")) || found.ETag == "" {
		return errors.New("a new object is not listed with its size and ETag")
	}
	return nil
}

func (b *Bucket) testRange(ctx context.Context, dir string) error {
	key := dir + "range"
	if _, err := b.Put(ctx, key, []byte("0123456789"), Condition{}); err != nil {
		return err
	}
	body, err := b.OpenRange(ctx, key, 3, 4)
	if err != nil {
		return err
	}
	raw, err := io.ReadAll(body)
	if err = errors.Join(err, body.Close()); err != nil {
		return err
	}
	if string(raw) != "3456" {
		return fmt.Errorf("bytes 3 to 6 are %q", raw)
	}
	return nil
}

// testMultipart uploads the parts in reverse order and with a gap in their numbers, as a registry may.
func (b *Bucket) testMultipart(ctx context.Context, dir string) error {
	u, err := b.BeginUpload(ctx, dir+"multipart")
	if err != nil {
		return err
	}
	data := bytes.NewReader(bytes.Repeat([]byte("buildyard"), MinPartSize/9+1))
	last, err := b.PutPart(ctx, u, 3, io.NewSectionReader(data, MinPartSize, data.Size()-MinPartSize))
	if err != nil {
		return err
	}
	first, err := b.PutPart(ctx, u, 1, io.NewSectionReader(data, 0, MinPartSize))
	if err != nil {
		return err
	}
	parts, err := b.ListParts(ctx, u)
	if err != nil {
		return err
	}
	if len(parts) != 2 {
		return fmt.Errorf("%d of 2 parts are listed", len(parts))
	}
	if _, err := b.CompleteUpload(ctx, u, []UploadedPart{last, first}); err != nil {
		return err
	}
	if _, err := b.ListParts(ctx, u); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("a completed upload is still listed (%w)", orNone(err))
	}
	return nil
}
