package s3test

import (
	"crypto/rand"
	"os"
	"strings"

	"github.com/buildyard/buildyard/internal/s3store"
)

// RealServer is the variable of the environment with the URL of a real server. Its bucket has the name Bucket; the
// credentials are those of the environment.
const RealServer = "BUILDYARD_TEST_S3"

// RealOptions returns options for an unused prefix on the real server; false when none is named.
func RealOptions() (s3store.Options, bool) {
	address := os.Getenv(RealServer)
	return s3store.Options{
		Bucket: Bucket, Prefix: "test-" + strings.ToLower(rand.Text()), Endpoint: address, Region: "us-east-1",
		AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"),
		PathStyle: true, PartSize: s3store.MinPartSize, KeepLifecycle: true,
	}, address != ""
}
