"""All structs of the wire contract.

Arrives: nothing. Leaves: the class into which each struct is decoded. Survives a crash: nothing.
"""

from __future__ import annotations

from bookkeeper import model, roots
from bookkeeper.rpc import messages, offers

STRUCTS: tuple[type, ...] = (
    offers.AdoptRequest,
    messages.ApplyRequest,
    model.BlockRange,
    messages.BulkProgress,
    messages.ClusterInfo,
    messages.CompactRequest,
    messages.CompactionTicket,
    messages.Condition,
    messages.CopyRequest,
    model.Extent,
    messages.Fault,
    messages.FileMark,
    messages.Hello,
    messages.ImportRequest,
    offers.ImportedLog,
    offers.ImportedSegment,
    model.LocalityGroup,
    offers.OfferAnswer,
    offers.OfferedSegment,
    offers.Onward,
    messages.OperationInfo,
    messages.QuarantinedRange,
    messages.ReplicateRequest,
    messages.ReplicateResult,
    messages.ReplicationConfig,
    roots.RootLog,
    messages.RootStanding,
    model.RowRange,
    messages.ScanPage,
    messages.ScanRequest,
    offers.SegmentPart,
    offers.SegmentsOffer,
    messages.SourceBlock,
    model.StreamKey,
    messages.TableInfo,
    messages.TableUsage,
    messages.TabletAssignment,
    messages.TabletLocation,
    model.TargetKey,
    messages.TargetStatus,
    messages.WorkItem,
    messages.WorkReport,
    messages.WriteBatch,
    messages.WriteResult,
)
"""A struct of the contract is decoded into the class of its name."""
