package s3store

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // the checksum that S3 compares, not a protection against attackers
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/buildyard/buildyard/internal/farm"
)

// ErrConflict is the failure of a conditional write: the object is not the expected one.
var ErrConflict = errors.New("the object was changed by another writer")

// Bucket is one prefix of a bucket. Keys are relative to the prefix. It may be used from many goroutines.
type Bucket struct {
	core *minio.Core
	http *http.Client // for presigned requests
	opts Options
}

// Object is one object of a listing.
type Object struct {
	Key      string
	Size     int64
	ETag     string
	Modified time.Time
}

// New checks the options; it sends no request.
func New(o Options) (*Bucket, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	transport, err := o.transport()
	if err != nil {
		return nil, err
	}
	core, err := o.connect(transport)
	if err != nil {
		return nil, err
	}
	return &Bucket{core: core, http: &http.Client{Transport: transport}, opts: o}, nil
}

// Options returns the options with their defaults.
func (b *Bucket) Options() Options { return b.opts }

// String names the prefix in messages.
func (b *Bucket) String() string { return "s3://" + b.opts.Bucket + "/" + b.opts.Prefix }

func (b *Bucket) fullKey(key string) string { return b.opts.Prefix + key }

// describe returns the error of an action in the words of this package: fs.ErrNotExist for a missing object,
// ErrConflict for a failed condition.
func describe(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	what := fmt.Sprintf(format, args...)
	switch r := minio.ToErrorResponse(err); {
	case r.Code == "NoSuchKey" || r.Code == "NoSuchUpload" || r.StatusCode == http.StatusNotFound &&
		r.Code != "NoSuchBucket":
		return fmt.Errorf("%s: %w", what, fs.ErrNotExist)
	case r.StatusCode == http.StatusPreconditionFailed || r.Code == "PreconditionFailed":
		return fmt.Errorf("%s: %w", what, ErrConflict)
	case r.StatusCode >= 500 || r.StatusCode == http.StatusTooManyRequests || r.StatusCode == 0 && !isEnded(err):
		return fmt.Errorf("%s: %w", what, unavailable(err))
	}
	return fmt.Errorf("%s: %w", what, err)
}

func isEnded(err error) bool { return errors.Is(err, context.Canceled) }

// unavailable marks an error as one after which another attempt may succeed.
func unavailable(err error) error {
	return farm.Unavailable(err, "The object storage of the registry cannot be reached")
}

// isConcurrentWrite reports whether a conditional write collided with another one that has not ended: it is to be
// tried again.
func isConcurrentWrite(err error) bool {
	r := minio.ToErrorResponse(err)
	return r.StatusCode == http.StatusConflict || r.Code == "ConditionalRequestConflict" || r.Code == "OperationAborted"
}

// CheckBucket returns an error if the bucket does not exist or the credentials do not permit its use.
func (b *Bucket) CheckBucket(ctx context.Context) error {
	there, err := b.core.BucketExists(ctx, b.opts.Bucket)
	if err != nil {
		return fmt.Errorf("check the S3 bucket %s: %w", b.opts.Bucket, err)
	}
	if !there {
		return fmt.Errorf("S3 bucket %s not found: create it, or check its name and region", b.opts.Bucket)
	}
	return nil
}

// List calls each with the objects whose keys begin with a prefix, in the order of their keys.
func (b *Bucket) List(ctx context.Context, prefix string, each func(Object) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the listing after an error
	list := b.core.Client.ListObjects(ctx, b.opts.Bucket,
		minio.ListObjectsOptions{Prefix: b.fullKey(prefix), Recursive: true})
	for o := range list {
		if o.Err != nil {
			return describe(o.Err, "list objects below %s", prefix)
		}
		key, ok := strings.CutPrefix(o.Key, b.opts.Prefix)
		if !ok || strings.HasSuffix(key, "/") { // gateways list directories as objects
			continue
		}
		if err := each(Object{Key: key, Size: o.Size, ETag: o.ETag, Modified: o.LastModified}); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// Stat returns size and ETag of an object; fs.ErrNotExist when there is none.
func (b *Bucket) Stat(ctx context.Context, key string) (Object, error) {
	info, err := b.core.StatObject(ctx, b.opts.Bucket, b.fullKey(key), minio.StatObjectOptions{})
	if err != nil {
		return Object{}, describe(err, "read attributes of %s", key)
	}
	return Object{Key: key, Size: info.Size, ETag: info.ETag, Modified: info.LastModified}, nil
}

// Get reads a whole object of at most limit bytes; fs.ErrNotExist when there is none.
func (b *Bucket) Get(ctx context.Context, key string, limit int64) ([]byte, Object, error) {
	var raw []byte
	var found Object
	err := b.retry(ctx, func() error {
		body, info, _, err := b.core.GetObject(ctx, b.opts.Bucket, b.fullKey(key), minio.GetObjectOptions{})
		if err != nil {
			return describe(err, "read %s", key)
		}
		defer body.Close()
		if info.Size > limit {
			return fmt.Errorf("read %s: it has %d bytes, more than %d", key, info.Size, limit)
		}
		found = Object{Key: key, Size: info.Size, ETag: info.ETag, Modified: info.LastModified}
		raw, err = io.ReadAll(io.LimitReader(body, limit+1))
		if err == nil && int64(len(raw)) != info.Size {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("read %s: %w: %w", key, errCutBody, err)
		}
		return nil
	})
	return raw, found, err
}

// errCutBody is the early end of a response, after which another attempt may succeed.
var errCutBody = errors.New("the response of the S3 server was cut")

// retry repeats an action whose response was cut. The client repeats the others.
func (b *Bucket) retry(ctx context.Context, do func() error) error {
	for attempt := 1; ; attempt++ {
		err := do()
		if err == nil || !errors.Is(err, errCutBody) || attempt >= b.opts.MaxAttemptsPerAction {
			return err
		}
		if err := pause(ctx, time.Duration(attempt)*50*time.Millisecond); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// OpenRange opens n bytes of an object at an offset. The caller closes the body, which may end early.
func (b *Bucket) OpenRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	var o minio.GetObjectOptions
	if err := o.SetRange(off, off+n-1); err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	body, info, _, err := b.core.GetObject(ctx, b.opts.Bucket, b.fullKey(key), o)
	if err != nil {
		return nil, describe(err, "read %d bytes at %d of %s", n, off, key)
	}
	if info.Size != n { // the length of the body
		return nil, errors.Join(fmt.Errorf("read %s: the server returned %d bytes instead of %d", key, info.Size, n),
			body.Close())
	}
	return body, nil
}

// Condition is what a write requires of the object that it replaces.
type Condition struct {
	ETag   string // of the object; "": see Absent
	Absent bool   // there must not be an object
}

// Put writes an object. It returns ErrConflict when the condition does not hold. A write whose response was lost is
// compared with what is stored, so the error is never that of the own write.
func (b *Bucket) Put(ctx context.Context, key string, data []byte, c Condition) (etag string, err error) {
	var o minio.PutObjectOptions
	switch {
	case c.Absent:
		o.SetMatchETagExcept("*")
	case c.ETag != "":
		o.SetMatchETag(c.ETag)
	}
	sum := md5.Sum(data) //nolint:gosec // as above
	for attempt := 1; ; attempt++ {
		info, err := b.core.PutObject(ctx, b.opts.Bucket, b.fullKey(key), bytes.NewReader(data), int64(len(data)),
			base64.StdEncoding.EncodeToString(sum[:]), "", o)
		switch {
		case err == nil:
			return info.ETag, nil
		case isConcurrentWrite(err) && attempt < b.opts.MaxAttemptsPerAction:
			if err := pause(ctx, time.Duration(attempt)*50*time.Millisecond); err != nil {
				return "", err
			}
			continue
		case c == Condition{}:
			return "", describe(err, "write %s", key)
		}
		err = describe(err, "write %s", key)
		if stored, at, readErr := b.Get(ctx, key, int64(len(data))); readErr == nil && bytes.Equal(stored, data) {
			return at.ETag, nil // an attempt before this one was carried out
		}
		return "", err
	}
}

// PutReader writes an object from a source that can be read again. It is for data that no other object replaces.
func (b *Bucket) PutReader(ctx context.Context, key string, src io.ReaderAt, size int64) (etag string, err error) {
	sum, err := partSum(src, 0, size)
	if err != nil {
		return "", err
	}
	info, err := b.core.PutObject(ctx, b.opts.Bucket, b.fullKey(key), io.NewSectionReader(src, 0, size), size,
		sum.base64(), "", minio.PutObjectOptions{DisableContentSha256: true})
	return info.ETag, describe(err, "write %s", key)
}

// checksum is the MD5 of the bytes of a part.
type checksum [md5.Size]byte

func (c checksum) base64() string { return base64.StdEncoding.EncodeToString(c[:]) }

func (c checksum) hex() string { return hex.EncodeToString(c[:]) }

func partSum(src io.ReaderAt, off, n int64) (checksum, error) {
	h := md5.New() //nolint:gosec // as above
	if _, err := io.CopyBuffer(h, io.NewSectionReader(src, off, n), make([]byte, 256<<10)); err != nil {
		return checksum{}, fmt.Errorf("read the bytes to upload: %w", err)
	}
	return checksum(h.Sum(nil)), nil
}

// PresignGet returns a URL with which anybody can read the object until it expires.
func (b *Bucket) PresignGet(ctx context.Context, key string) (string, error) {
	u, err := b.core.PresignedGetObject(ctx, b.opts.Bucket, b.fullKey(key), b.opts.URLExpiry, url.Values{})
	if err != nil {
		return "", fmt.Errorf("presign %s: %w", key, err)
	}
	return u.String(), nil
}
