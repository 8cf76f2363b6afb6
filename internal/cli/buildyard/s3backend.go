package buildyard

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/registry/s3backend"
	"github.com/buildyard/buildyard/internal/s3store"
)

// openBackend returns the bucket that the settings name as the storage; nil: the storage is a directory.
func openBackend(settings *config.Values, log *slog.Logger) (*s3backend.Backend, error) {
	if settings.String(config.BackendType) != config.BackendS3 {
		return nil, refuseUnusedBucket(settings)
	}
	o := bucketOptions(settings, settings.String(config.S3Bucket), settings.String(config.S3Prefix), log)
	o.PartSize = int64(settings.Int(config.S3UploadPartSize))
	o.UploadConcurrency = settings.Int(config.S3UploadConcurrency)
	o.ReadBufferSize = int64(settings.Int(config.S3DownloadBufferSize))
	o.AbortIncompleteDays = settings.Int(config.S3AbortIncompleteDays)
	o.LeaseDuration = settings.Duration(config.S3LeaseDuration)
	o.Standby = settings.Bool(config.S3Standby)
	o.URLExpiry = settings.Duration(config.S3URLExpiry)
	o.ProxyPulls = settings.Bool(config.S3ProxyPulls)
	return s3backend.New(o)
}

// refuseUnusedBucket returns an error for settings of a bucket that would have no effect.
func refuseUnusedBucket(settings *config.Values) error {
	for _, s := range config.RegistryTable {
		if strings.HasPrefix(s.Key, "SVC_BACKEND_S3_") && settings.Origin(s.Key) != config.FromDefault {
			return fmt.Errorf("%s is set, but %s is %s: set that to %s, or remove the setting", s.Key,
				config.BackendType, config.BackendDisk, config.BackendS3)
		}
	}
	return nil
}

// bucketOptions returns the options of the access to a bucket.
func bucketOptions(settings *config.Values, bucket, prefix string, log *slog.Logger) s3store.Options {
	return s3store.Options{
		Bucket: bucket, Prefix: prefix,
		Endpoint: settings.String(config.S3Endpoint), Region: settings.String(config.S3Region),
		AccessKeyID: settings.String(config.S3AccessKeyID), SecretAccessKey: settings.String(config.S3SecretAccessKey),
		SessionToken: settings.String(config.S3SessionToken), PathStyle: settings.Bool(config.S3UsePathStyle),
		SkipTLSVerification: settings.Bool(config.S3SkipTLSVerification),
		LogRequests:         settings.Bool(config.S3LogRequests), Logger: log,
	}
}

// watchBackend waits until ctx ends, or until another registry owns the bucket, which is an error.
func (s *RegistryService) watchBackend(ctx context.Context) error {
	if s.backend == nil {
		<-ctx.Done()
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.backend.Failed():
		return err
	}
}
