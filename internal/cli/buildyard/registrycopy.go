package buildyard

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/registry/s3backend"
)

// copyTable is the settings of the copy into a bucket; bucket and prefix are in its destination.
var copyTable = append(config.Table{
	{
		Key: config.BasePath, Flag: "base-path", Default: config.RegistryTable[0].Default, Kind: config.Path,
		Help: "storage directory to copy",
	},
}, slices.DeleteFunc(slices.Clone(config.BucketTable), func(s config.Setting) bool {
	return s.Key == config.S3Bucket || s.Key == config.S3Prefix
})...)

// copyCommand copies a storage on disk into a bucket.
func copyCommand(streams Streams) *cobra.Command {
	var to string
	var output cli.Format
	cmd := &cobra.Command{
		Use:   "copy --to s3://BUCKET[/PREFIX]",
		Short: "Copy registry storage to S3",
		Long: `copy copies the templates of a storage directory into a bucket, from which a registry with
SVC_BACKEND_TYPE=s3 serves them. Every layer is verified before it is sent. Layers that the bucket has are not sent
again, and an interrupted copy continues where it ended.

A registry may use the directory during the first copy, which takes long. Then stop it, and run the command
again: it copies the rest. The credentials are those of a registry: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,
or the files that AWS_ACCESS_KEY_ID_FILE and AWS_SECRET_ACCESS_KEY_FILE name.`,
		Example: `  buildyard registry copy --to s3://templates/site-1
  buildyard registry copy --base-path /srv/templates --backend-s3-endpoint https://s3.example.com --to s3://templates`,
		Args: cobra.NoArgs,
	}
	cli.AddFlags(cmd.Flags(), copyTable)
	output.Add(cmd)
	cmd.Flags().StringVar(&to, "to", "", "destination s3://BUCKET[/PREFIX]")
	_ = cmd.MarkFlagRequired("to")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		src := cli.Sources(cmd.Flags())
		src.Stdin = streams.In
		if show, _ := cmd.Flags().GetBool("print-config"); show {
			return cli.PrintConfig(streams.Out, copyTable, src)
		}
		// The settings file of the registry that is going to use the bucket has more than copyTable.
		values, err := config.Load(config.RegistryTable, src)
		if err != nil {
			return cli.Usage(err)
		}
		report, err := runCopy(cmd.Context(), streams, values, to)
		if err != nil {
			return err
		}
		return output.Write(streams.Out, report, copyReportTable(report))
	}
	return cmd
}

func runCopy(ctx context.Context, streams Streams, values *config.Values, to string) (s3backend.CopyReport, error) {
	bucket, prefix, err := s3backend.ParseURL(to)
	if err != nil {
		return s3backend.CopyReport{}, cli.Usage(err)
	}
	o := s3backend.CopyOptions(bucketOptions(values, bucket, prefix, nil))
	began, next := time.Now(), time.Now().Add(progressEvery)
	return s3backend.Copy(ctx, values.String(config.BasePath), o, func(p s3backend.CopyProgress) {
		if now := time.Now(); now.After(next) {
			next = now.Add(progressEvery)
			rate := int64(float64(p.Done) / now.Sub(began).Seconds())
			_, _ = fmt.Fprintf(streams.Err, "%s of %s copied, %s/s\n", bytesize.Format(p.Done),
				bytesize.Format(p.Total), bytesize.Format(rate))
		}
	})
}

func copyReportTable(r s3backend.CopyReport) func(*cli.Grid) {
	return func(g *cli.Grid) {
		g.Row("templates", r.Templates)
		g.Row("versions", r.Versions)
		g.Row("layers", fmt.Sprintf("%d, %s", r.Layers, bytesize.Format(r.Bytes)))
		g.Row("copied", bytesize.Format(r.CopiedBytes))
		if r.Changed > 0 {
			g.Row("not copied", fmt.Sprintf("%d templates that changed during the copy; run it again", r.Changed))
		}
	}
}
