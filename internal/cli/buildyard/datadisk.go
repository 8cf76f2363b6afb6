package buildyard

import (
	"errors"
	"fmt"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/host"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/controller/alarms"
	"github.com/buildyard/buildyard/internal/metric"
	"github.com/buildyard/buildyard/internal/store/backup"
	"github.com/buildyard/buildyard/internal/store/etcd"
)

// dataDisk returns the free and total bytes of the file system of the data directory.
func (s *ControllerService) dataDisk() (free, total int64) {
	free, total, err := host.DiskSpace(s.settings.String(config.DataDir))
	if err != nil {
		return 0, 0
	}
	return free, total
}

// diskAlarms returns the alarms of the data directory and its store.
func (s *ControllerService) diskAlarms() (list []api.Alarm) {
	if sentence := s.backend.RefusalMessage(); sentence != "" {
		list = append(list, api.Alarm{
			Name: api.AlarmStoreFull, Message: sentence,
			Action: "Free space on the disk of " + config.DataDir + "; writes resume automatically.",
		})
	}
	if free, total := s.dataDisk(); alarms.DiskLow(free, total, s.settings.Size(config.DiskAlarm)) {
		list = append(list, api.Alarm{
			Name: api.AlarmDataDisk, Message: "The disk of the controller's data directory is filling up: " +
				alarms.DiskText(free, total),
			Action: "Free space: the controller rejects writes when the disk is full.",
		})
	}
	return list
}

// withRemedy adds the command that restores a damaged store to its error.
func (s *ControllerService) withRemedy(err error) error {
	if _, damaged := errors.AsType[*etcd.DamagedError](err); !damaged {
		return err
	}
	file, dir := "FILE", s.settings.String(config.BackupDir)
	if dir != "" {
		if file = backup.NewestBackup(dir); file == "" {
			return fmt.Errorf(
				"%w; no complete backup found in %s; restore one from elsewhere: buildyard restore FILE --data-dir "+
					"%s --force",
				err, dir, s.settings.String(config.DataDir))
		}
	}
	return fmt.Errorf("%w; restore the newest backup: buildyard restore %s --data-dir %s --force", err, file,
		s.settings.String(config.DataDir))
}

func (s *ControllerService) diskFamilies() []metric.Family {
	return []metric.Family{
		metric.GaugeFamily("buildyard_data_disk_free_bytes",
			"Free bytes on the disk of the data directory", func() float64 {
				free, _ := s.dataDisk()
				return float64(free)
			}),
		metric.GaugeFamily("buildyard_data_disk_size_bytes",
			"Size of the disk of the data directory in bytes", func() float64 {
				_, total := s.dataDisk()
				return float64(total)
			}),
	}
}
