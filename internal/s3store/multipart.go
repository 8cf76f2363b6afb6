package s3store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"
)

// UploadID names a multipart upload: its key and the ID that the server gave it.
type UploadID struct {
	Key string `json:"key"`
	ID  string `json:"id"`
}

// UploadedPart is a part that the server has.
type UploadedPart struct {
	Number int // from 1
	ETag   string
	Size   int64
}

// PartSizeFor returns the size of the parts of an object: the setting, or more if the object had too many parts.
func (b *Bucket) PartSizeFor(size int64) int64 {
	return max(b.opts.PartSize, (size+maxParts-1)/maxParts)
}

// BeginUpload begins a multipart upload.
func (b *Bucket) BeginUpload(ctx context.Context, key string) (UploadID, error) {
	id, err := b.core.NewMultipartUpload(ctx, b.opts.Bucket, b.fullKey(key), minio.PutObjectOptions{})
	if err != nil {
		return UploadID{}, describe(err, "begin the upload of %s", key)
	}
	return UploadID{Key: key, ID: id}, nil
}

// PutPart uploads the bytes of src as a part. The server compares their checksum.
func (b *Bucket) PutPart(ctx context.Context, u UploadID, number int, src *io.SectionReader) (UploadedPart, error) {
	sum, err := partSum(src, 0, src.Size())
	if err != nil {
		return UploadedPart{}, err
	}
	p, err := b.core.PutObjectPart(ctx, b.opts.Bucket, b.fullKey(u.Key), u.ID, number, src, src.Size(),
		minio.PutObjectPartOptions{Md5Base64: sum.base64(), DisableContentSha256: true})
	if err != nil {
		return UploadedPart{}, describe(err, "upload part %d of %s", number, u.Key)
	}
	return UploadedPart{Number: number, ETag: p.ETag, Size: src.Size()}, nil
}

// MatchesPart reports whether an uploaded part has the bytes of src at off.
func (p UploadedPart) MatchesPart(src io.ReaderAt, off int64) (bool, error) {
	sum, err := partSum(src, off, p.Size)
	return err == nil && trimETag(p.ETag) == sum.hex(), err
}

func trimETag(etag string) string { return strings.Trim(etag, `"`) }

// ListParts returns the parts that the server has of an upload; fs.ErrNotExist when it has ended.
func (b *Bucket) ListParts(ctx context.Context, u UploadID) ([]UploadedPart, error) {
	var out []UploadedPart
	for marker := 0; ; {
		r, err := b.core.ListObjectParts(ctx, b.opts.Bucket, b.fullKey(u.Key), u.ID, marker, 1000)
		if err != nil {
			return nil, describe(err, "list the parts of %s", u.Key)
		}
		for _, p := range r.ObjectParts {
			out = append(out, UploadedPart{Number: p.PartNumber, ETag: p.ETag, Size: p.Size})
		}
		if !r.IsTruncated || r.NextPartNumberMarker <= marker {
			return out, nil
		}
		marker = r.NextPartNumberMarker
	}
}

// CompleteUpload makes the object of its parts. The response may be lost, and a success may carry an error: the
// object counts when its size is the expected one.
func (b *Bucket) CompleteUpload(ctx context.Context, u UploadID, parts []UploadedPart) (etag string, err error) {
	list, size := make([]minio.CompletePart, 0, len(parts)), int64(0)
	byNumber := func(a, b UploadedPart) int { return a.Number - b.Number }
	for _, p := range slices.SortedFunc(slices.Values(parts), byNumber) {
		list = append(list, minio.CompletePart{PartNumber: p.Number, ETag: p.ETag})
		size += p.Size
	}
	_, err = b.core.CompleteMultipartUpload(ctx, b.opts.Bucket, b.fullKey(u.Key), u.ID, list, minio.PutObjectOptions{})
	err = describe(err, "complete the upload of %s", u.Key)
	stored, statErr := b.Stat(ctx, u.Key)
	switch {
	case statErr != nil && err != nil:
		return "", err
	case statErr != nil:
		return "", fmt.Errorf("complete the upload of %s: %w", u.Key, statErr)
	case stored.Size != size:
		return "", errors.Join(err, fmt.Errorf("complete the upload of %s: it has %s bytes instead of %d", u.Key,
			strconv.FormatInt(stored.Size, 10), size))
	}
	return stored.ETag, nil
}

// AbortUpload removes an upload and its parts; one that has ended is not an error.
func (b *Bucket) AbortUpload(ctx context.Context, u UploadID) error {
	err := b.core.AbortMultipartUpload(ctx, b.opts.Bucket, b.fullKey(u.Key), u.ID)
	if err = describe(err, "abort the upload of %s", u.Key); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// ListUploads returns the incomplete uploads of keys with a prefix.
func (b *Bucket) ListUploads(ctx context.Context, prefix string) ([]UploadID, error) {
	var out []UploadID
	keyMarker, idMarker := "", ""
	for {
		r, err := b.core.ListMultipartUploads(ctx, b.opts.Bucket, b.fullKey(prefix), keyMarker, idMarker, "", 1000)
		if err != nil {
			return nil, describe(err, "list incomplete uploads")
		}
		for _, u := range r.Uploads {
			if key, ok := strings.CutPrefix(u.Key, b.opts.Prefix); ok {
				out = append(out, UploadID{Key: key, ID: u.UploadID})
			}
		}
		if !r.IsTruncated || r.NextKeyMarker == keyMarker && r.NextUploadIDMarker == idMarker {
			return out, nil
		}
		keyMarker, idMarker = r.NextKeyMarker, r.NextUploadIDMarker
	}
}
