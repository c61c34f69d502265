"""All structs of the wire contract.

Arrives: nothing. Leaves: the class into which each struct is decoded. Survives a crash: nothing.
"""

from __future__ import annotations

from bookkeeper import model, roots
from bookkeeper.rpc import messages, offers, root_questions

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
    messages.ReplicationChange,
    roots.RootLog,
    root_questions.HandedOn,
    root_questions.RootQuestion,
    root_questions.RootStanding,
    model.RowRange,
    messages.ScanPage,
    messages.ScanRequest,
    offers.SegmentPart,
    offers.SegmentsOffer,
    messages.ServedTablets,
    messages.SourceBlock,
    model.StreamKey,
    messages.TableInfo,
    messages.TableUsage,
    messages.TabletAssignment,
    messages.TabletLocation,
    messages.TabletProblem,
    model.TargetKey,
    messages.TargetStatus,
    messages.ReplicationReport,
    messages.WorkItem,
    messages.WorkReport,
    messages.WriteBatch,
    messages.WriteResult,
)
"""A struct of the contract is decoded into the class of its name."""
