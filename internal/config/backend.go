package config

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Keys of the storage of a registry.
const (
	BackendType           = "SVC_BACKEND_TYPE"
	S3Bucket              = "SVC_BACKEND_S3_BUCKET"
	S3Prefix              = "SVC_BACKEND_S3_PREFIX"
	S3Endpoint            = "SVC_BACKEND_S3_ENDPOINT"
	S3Region              = "SVC_BACKEND_S3_REGION"
	S3UsePathStyle        = "SVC_BACKEND_S3_USE_PATH_STYLE"
	S3SkipTLSVerification = "SVC_BACKEND_S3_SKIP_TLS_VERIFICATION"
	S3LogRequests         = "SVC_BACKEND_S3_LOG_REQUESTS"
	S3UploadPartSize      = "SVC_BACKEND_S3_UPLOAD_PART_SIZE"
	S3UploadConcurrency   = "SVC_BACKEND_S3_UPLOAD_CONCURRENCY"
	S3DownloadBufferSize  = "SVC_BACKEND_S3_DOWNLOAD_BUFFER_SIZE"
	S3AbortIncompleteDays = "SVC_BACKEND_S3_ABORT_INCOMPLETE_MULTIPART_UPLOAD_DAYS"
	S3LeaseDuration       = "SVC_BACKEND_S3_LEASE_DURATION"
	S3Standby             = "SVC_BACKEND_S3_STANDBY"
	S3URLExpiry           = "SVC_BACKEND_S3_URL_EXPIRY"
	S3ProxyPulls          = "SVC_BACKEND_S3_PROXY_PULLS"
	S3AccessKeyID         = "AWS_ACCESS_KEY_ID"
	S3SecretAccessKey     = "AWS_SECRET_ACCESS_KEY" //nolint:gosec // the name of a setting
	S3SessionToken        = "AWS_SESSION_TOKEN"     //nolint:gosec // the name of a setting
)

// Values of BackendType.
const (
	BackendDisk = "disk"
	BackendS3   = "s3"
)

// backendTable is the settings of the storage, which a registry has, alone or in a controller's process.
var backendTable = append(Table{
	{
		Key: BackendType, Flag: "backend-type", Default: BackendDisk, Kind: String,
		Check: oneOf(BackendDisk, BackendS3),
		Help:  "storage of the registry: disk or s3; with s3 the storage directory is a working directory",
	},
	{
		Key: S3UploadPartSize, Flag: "backend-s3-upload-part-size", Default: "20971520", Kind: Int,
		Check: intBetween(5<<20, 500<<20), Help: "bytes of a part of an upload to the bucket",
	},
	{
		Key: S3UploadConcurrency, Flag: "backend-s3-upload-concurrency", Default: "2", Kind: Int,
		Check: intBetween(1, 64), Help: "parts of one layer that are uploaded concurrently",
	},
	{
		Key: S3DownloadBufferSize, Flag: "backend-s3-download-buffer-size", Default: "2097152", Kind: Int,
		Check: intBetween(4<<10, 512<<20), Help: "minimum bytes that the registry reads from the bucket in one request",
	},
	{
		Key: S3AbortIncompleteDays, Flag: "backend-s3-abort-incomplete-multipart-upload-days", Default: "1", Kind: Int,
		Check: intBetween(0, 365),
		Help:  "days after which the bucket removes incomplete uploads; 0 removes that lifecycle rule",
	},
	{
		Key: S3LeaseDuration, Flag: "backend-s3-lease-duration", Default: "30s", Kind: Duration,
		Check: durationBetween(3*time.Second, 10*time.Minute),
		Help:  "time without contact to the bucket after which another registry may take it over",
	},
	{
		Key: S3Standby, Flag: "backend-s3-standby", Default: "false", Kind: Bool,
		Help: "wait at the start while another registry owns the bucket, instead of failing",
	},
	{
		Key: S3URLExpiry, Flag: "backend-s3-url-expiry", Default: "15m", Kind: Duration,
		Check: durationBetween(time.Minute, 24*time.Hour),
		Help:  "validity of the URLs at which nodes read layers from the bucket",
	},
	{
		Key: S3ProxyPulls, Flag: "backend-s3-proxy-pulls", Default: "false", Kind: Bool,
		Help: "serve layers through the registry; nodes need no access to the bucket",
	},
}, BucketTable...)

// BucketTable is the settings of the access to a bucket.
var BucketTable = Table{
	{
		Key: S3Bucket, Flag: "backend-s3-bucket", Default: "anka-registry", Kind: String, Check: checkBucket,
		Help: "name of the bucket, which must exist",
	},
	{
		Key: S3Prefix, Flag: "backend-s3-prefix", Kind: String,
		Help: "beginning of all keys in the bucket, such as templates/site-1 (default: the whole bucket)",
	},
	{
		Key: S3Endpoint, Flag: "backend-s3-endpoint", Alias: "AWS_ENDPOINT_URL_S3", Kind: String, Check: checkURL,
		Help: "URL of the S3 server (default: Amazon S3)",
	},
	{
		Key: S3Region, Flag: "backend-s3-region", Alias: "AWS_REGION", Kind: String,
		Help: "region of the bucket (default: the server is asked)",
	},
	{
		Key: S3UsePathStyle, Flag: "backend-s3-use-path-style", Default: "false", Kind: Bool,
		Help: "name the bucket in the path instead of the host name",
	},
	{
		Key: S3SkipTLSVerification, Flag: "backend-s3-skip-tls-verification", Default: "false", Kind: Bool,
		Help: "do not verify the certificate of the S3 server (testing only)",
	},
	{
		Key: S3LogRequests, Flag: "backend-s3-log-requests", Default: "false", Kind: Bool,
		Help: "log every request to the S3 server",
	},
	{
		Key: S3AccessKeyID, Flag: "s3-access-key-id", Kind: Secret, FileFlag: "s3-access-key-id-file",
		Help: "access key ID of the bucket (default: the role of the instance)",
	},
	{
		Key: S3SecretAccessKey, Flag: "s3-secret-access-key", Kind: Secret, FileFlag: "s3-secret-access-key-file",
		Private: true, Help: "secret access key of the bucket; prefer the environment or a file",
	},
	{
		Key: S3SessionToken, Flag: "s3-session-token", Kind: Secret, FileFlag: "s3-session-token-file", Private: true,
		Help: "session token of temporary credentials; prefer the environment or a file",
	},
}

// intBetween returns a check of a whole number.
func intBetween(low, high int) func(string) error {
	return func(text string) error {
		if n, err := strconv.Atoi(text); err != nil || n < low || n > high {
			return fmt.Errorf("a whole number between %d and %d", low, high)
		}
		return nil
	}
}

// checkBucket checks the name of a bucket.
func checkBucket(text string) error {
	ok := len(text) >= 3 && len(text) <= 63
	for _, c := range text {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '.')
	}
	if !ok {
		return errors.New("a bucket name of 3 to 63 lower-case letters, digits, hyphens and dots")
	}
	return nil
}
